"""A training script whose policy is scripted: answers of random lengths, one in a hundred of them 20 times slower."""

import asyncio
import os
import random
from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop

SECONDS_PER_WORD, SLOW, SLOW_SHARE = 0.1, 20, 0.01


def words(index: int, session: int) -> int:
    """Return the length of an answer."""
    return random.Random(f"{index} {session}").randint(5, 60)


def is_slow(index: int, session: int) -> bool:
    """Whether an answer is slow in a run with slow answers."""
    return random.Random(f"slow {index} {session}").random() < SLOW_SHARE


class Scripted:
    """verl's client, without an engine."""

    def __init__(self, tokenizer: Any, index: int, session: int) -> None:
        self.tokenizer, self.index, self.session = tokenizer, index, session

    async def generate(self, **request: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        length = words(self.index, self.session)
        slow = "SLOW_SESSIONS" in os.environ and is_slow(self.index, self.session)
        await asyncio.sleep(SECONDS_PER_WORD * length * (SLOW if slow else 1))
        text = f"Thought: {'well ' * length}\nFinal Answer: {self.session}<|im_end|>"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        versions = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed", extra_fields=versions)


@register_agent_loop("slow")
class SlowLoop(ReactAgentLoop):
    agent = "slow"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        self.server_manager = Scripted(self.tokenizer, int(row["index"]), row["session_id"])
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
