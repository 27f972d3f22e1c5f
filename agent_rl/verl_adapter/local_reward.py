"""`reward.num_workers=0`: trajectories are scored in the agent-loop workers' own processes.

A rule costs less than the call to a reward worker that asks for it, and each reward worker is a process that imports
all of verl. What is run is verl's own worker class with the same reward manager and the same custom function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["check", "score_here"]


def check(reward: Any, *, needs_groups: bool) -> None:
    """Refuse no reward workers where something needs them, and some where the samples of a prompt must meet.

    Args:
        reward: the section `reward` of verl's configuration.
        needs_groups: whether a component of our reward measures the samples of a prompt against one another.

    Raises:
        ConfigError: when there is a reward model, whose address only reward workers are told (a component of the
            manager `trajectory` finds it in the configuration); or reward workers, among which verl spreads the samples
            of a prompt.
    """
    if needs_groups and reward.num_workers > 0:
        raise ConfigError(
            "reward.num_workers",
            f"{reward.num_workers} reward workers never see all samples of a prompt, which agent_rl.reward compares",
            "Set it to 0: then each agent-loop worker scores the prompts that it samples",
        )
    custom = reward.custom_reward_function.path is not None
    by_component = reward.reward_manager.name == "trajectory" and not custom
    if reward.num_workers < 1 and reward.reward_model.enable and not by_component:
        raise ConfigError(
            "reward.num_workers",
            f"{reward.num_workers} leaves nobody to ask the reward model",
            "Set it to 1 or more, or reward.reward_model.enable=false",
        )


def score_here(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: a worker that was given no reward worker is its own.

    verl would choose one from the empty list.
    """
    original = module.AgentLoopWorker.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.reward_loop_worker_handles is not None and not self.reward_loop_worker_handles:
            from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

            self.reward_loop_worker_handles = [_Here(RewardLoopWorker(self.config))]

    module.AgentLoopWorker.__init__ = init


class _Here:
    """An object with the one method that verl calls on a reward worker's handle."""

    def __init__(self, worker: Any) -> None:
        self.compute_score = _Method(worker.compute_score)


class _Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function
