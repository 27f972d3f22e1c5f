"""A training script that provokes faults: the row says which; the first turn is scripted, the others are the
engine's."""

from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop

FIRST_TURN = {
    "tool_raises": "Thought: go\nAction: raises\nAction Input: {}",
    "tool_hangs": "Thought: go\nAction: hangs\nAction Input: {}",
    "engine_fails": "Thought: go\nAction: raises\nAction Input: {}",
    "answers": "Thought: go\nFinal Answer: 4",
    "malformed_row": "Thought: go\nFinal Answer: 1",
}


class ScriptedFirstTurn:
    """verl's client with the first answer replaced, and none after that when the engine is to fail."""

    def __init__(self, server: Any, tokenizer: Any, fault: str) -> None:
        self.server, self.tokenizer, self.fault = server, tokenizer, fault
        self.calls = 0

    async def generate(self, **request: Any) -> Any:
        self.calls += 1
        if self.calls > 1 and self.fault == "engine_fails":
            raise ConnectionError("the engine went away")
        output = await self.server.generate(**request)
        if self.calls == 1:
            output.token_ids = self.tokenizer.encode(FIRST_TURN[self.fault] + "<|im_end|>", add_special_tokens=False)
            output.log_probs = [-1.0] * len(output.token_ids)
            output.stop_reason = "stop"
        return output


@register_agent_loop("faulty")
class FaultyLoop(ReactAgentLoop):
    agent = "faulty"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        self.server_manager = ScriptedFirstTurn(self.server_manager, self.tokenizer, row["extra_info"]["fault"])
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
