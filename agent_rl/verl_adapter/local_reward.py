"""What an agent-loop worker does for scoring: it gives the reward manager the trajectory, and may score by itself.

With `reward.num_workers=0` trajectories are scored in the agent-loop workers' own processes: a rule costs less than a
call to a reward worker, and each reward worker is a process that imports all of verl. verl's own reward worker class
runs there, with the same reward manager and the same custom function.
"""

from __future__ import annotations

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["score_here"]


def score_here(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: give the reward manager its data, and score without reward workers.

    verl's own loops make no trajectory, and verl would choose a reward worker from the empty list.
    """
    original = module.AgentLoopWorker.__init__
    original_score = module.AgentLoopWorker._compute_score

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.reward_loop_worker_handles is not None and not self.reward_loop_worker_handles:
            from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

            method = SimpleNamespace(remote=RewardLoopWorker(self.config).compute_score)  # as of a Ray actor's handle
            self.reward_loop_worker_handles = [SimpleNamespace(compute_score=method)]

    @functools.wraps(original_score)
    async def compute_score(self: Any, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        from agent_rl.verl_adapter.outputs import TRAJECTORY, give_trajectory

        last = outputs[-1]
        if last.reward_score is None:
            give_trajectory(last, kwargs, self.tokenizer, self.config.reward.reward_manager.name)
        await original_score(self, outputs, kwargs)
        if last.reward_score is not None:  # the trainer fetches `extra_fields` at each step, and reads no conversation
            last.extra_fields.pop(TRAJECTORY, None)

    module.AgentLoopWorker.__init__ = init
    module.AgentLoopWorker._compute_score = compute_score
