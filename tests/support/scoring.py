"""A trajectory scored at once, as a manager would."""

import asyncio
from typing import Any

from agent_rl.rewards import Reward
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Score, Trajectory


def score(
    trajectory: Trajectory, settings: RewardSettings | dict[str, Any] | None = None, *, verdict: Any = None, **made: Any
) -> Score:
    """By the settings, given as such or as a section; `made` goes to `Reward`."""
    if not isinstance(settings, RewardSettings):
        settings = RewardSettings.model_validate(settings or {})
    return asyncio.run(Reward(settings, **made).score(trajectory, verdict=verdict))
