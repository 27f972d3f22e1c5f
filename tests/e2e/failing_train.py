"""A training script whose policy is scripted, and of whose sessions 5 % fail: in the engine, or in the reward."""

import random
from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop
from agent_rl.errors import UnscoredError

SHARE = 0.05
ENGINE, REWARD = "engine", "reward"


def failure(index: int, session: int) -> str:
    """What fails in a session of a row: `ENGINE`, `REWARD` or nothing; in each twentieth row all sessions but one."""
    draw = random.Random(f"{index} {session}")
    if draw.random() < SHARE or (index % 20 == 7 and session):
        return draw.choice([ENGINE, REWARD])
    return ""


def compute_score(extra_info: dict[str, Any], **more: Any) -> float:
    """The custom reward function of the run: different for the samples of a row."""
    session = int(extra_info["trajectory"]["id"].rpartition("_")[2])
    if failure(extra_info["index"], session) == REWARD:
        raise UnscoredError("the judge is away")
    return float((extra_info["index"] * 3 + session * 5) % 7 / 8)


class Scripted:
    """verl's client, without an engine."""

    def __init__(self, tokenizer: Any, fails: bool, session: int) -> None:
        self.tokenizer, self.fails, self.session = tokenizer, fails, session

    async def generate(self, **request: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        if self.fails:
            raise ConnectionError("the engine went away")
        text = f"Thought: {'well ' * self.session}\nFinal Answer: {self.session}<|im_end|>"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        versions = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed", extra_fields=versions)


@register_agent_loop("failing")
class FailingLoop(ReactAgentLoop):
    agent = "failing"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        fails = failure(int(row["index"]), row["session_id"]) == ENGINE
        self.server_manager = Scripted(self.tokenizer, fails, row["session_id"])
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
