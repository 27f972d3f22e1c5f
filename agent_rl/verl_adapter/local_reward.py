"""Scores trajectories in the agent-loop workers' own processes: `reward.num_workers=0`.

A rule costs less than a call to a reward worker, and each reward worker is a process that imports all of verl. Here
verl's own worker class runs, with the same reward manager and the same custom function.
"""

from __future__ import annotations

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["score_here"]


def score_here(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: a worker with an empty list of reward workers scores by itself.

    verl would choose one from the empty list.
    """
    original = module.AgentLoopWorker.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.reward_loop_worker_handles is not None and not self.reward_loop_worker_handles:
            from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

            method = SimpleNamespace(remote=RewardLoopWorker(self.config).compute_score)  # as of a Ray actor's handle
            self.reward_loop_worker_handles = [SimpleNamespace(compute_score=method)]

    module.AgentLoopWorker.__init__ = init
