"""A training script that provokes faults, or whose samples are the same in every run: the first turn is scripted.

A row says which fault is provoked, or what each session of its prompt answers; other turns are the engine's.
"""

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

    def __init__(self, loop: Any, text: str, fails: bool = False) -> None:
        self.server, self.tokenizer, self.text, self.fails = loop.server_manager, loop.tokenizer, text, fails
        self.calls = 0

    async def generate(self, **request: Any) -> Any:
        self.calls += 1
        if self.calls > 1 and self.fails:
            raise ConnectionError("the engine went away")
        output = await self.server.generate(**request)
        if self.calls == 1:
            output.token_ids = self.tokenizer.encode(self.text + "<|im_end|>", add_special_tokens=False)
            output.log_probs = [-1.0] * len(output.token_ids)
            output.stop_reason = "stop"
        return output


@register_agent_loop("faulty")
class FaultyLoop(ReactAgentLoop):
    agent = "faulty"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        fault = row["extra_info"]["fault"]
        self.server_manager = ScriptedFirstTurn(self, FIRST_TURN[fault], fault == "engine_fails")
        return await super().run(sampling_params, **row)


@register_agent_loop("told")
class ToldLoop(ReactAgentLoop):
    agent = "told"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        answer = row["extra_info"]["answers"][row["session_id"]]
        self.server_manager = ScriptedFirstTurn(self, f"Thought: it is clear\nFinal Answer: {answer}")
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
