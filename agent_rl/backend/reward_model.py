"""Whether verl will use a reward model as the configuration says: asked before Ray starts.

verl asks the reward manager only where the user has a reward function; and a model that shares the trainer's GPUs is
asked after sampling, with nothing but prompt and response. It says neither.
"""

from __future__ import annotations

from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["check"]


def check(reward: Any) -> None:
    """Refuse a reward model that verl would not use as the configuration says.

    Args:
        reward: the section `reward` of verl's configuration.

    Raises:
        ConfigError: when the model would replace the reward manager `trajectory`, and when a reward function that asks
            the model would get neither ground truth nor data source.
    """
    model, manager = reward.reward_model, reward.reward_manager.name
    if not model.enable or manager not in ("trajectory", "naive"):
        return
    custom = reward.custom_reward_function.path is not None
    if manager == "trajectory" and not custom:
        raise ConfigError(
            "reward.reward_model.enable",
            "verl would score with the reward model alone and never ask the reward manager 'trajectory'",
            "Set reward.reward_manager.name=naive for that, or give reward.custom_reward_function.path",
        )
    if custom and not model.enable_resource_pool:
        raise ConfigError(
            "reward.reward_model.enable_resource_pool",
            "a model that shares the trainer's GPUs scores after sampling, where verl has no ground truth to hand on",
            "Set it to true: the reward function then reaches the model while trajectories are sampled",
        )
