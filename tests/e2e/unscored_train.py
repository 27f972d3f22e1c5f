"""A training script whose samples are the same in every run: the row says what each session of its prompt answers."""

from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop


class Told:
    """verl's client, whose answer is replaced."""

    def __init__(self, server: Any, tokenizer: Any, answer: int) -> None:
        self.server, self.tokenizer, self.answer = server, tokenizer, answer

    async def generate(self, **request: Any) -> Any:
        output = await self.server.generate(**request)
        text = f"Thought: it is clear\nFinal Answer: {self.answer}<|im_end|>"
        output.token_ids = self.tokenizer.encode(text, add_special_tokens=False)
        output.log_probs = [-1.0] * len(output.token_ids)
        output.stop_reason = "stop"
        return output


@register_agent_loop("told")
class ToldLoop(ReactAgentLoop):
    agent = "told"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        answer = row["extra_info"]["answers"][row["session_id"]]
        self.server_manager = Told(self.server_manager, self.tokenizer, answer)
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
