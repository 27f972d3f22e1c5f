"""The component `correctness`: whether the final answer is right, by the scorer that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Component, Value
from agent_rl.rewards.kinds import make_component
from agent_rl.rewards.numeric import numeric_match
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Trajectory

__all__ = ["Correctness"]


class Correctness:
    """Judges answers.

    What was judged elsewhere comes first (a custom reward function, a reward service, and with `scorer: auto` a
    simulated user's verdict); then the scorer, by name or by the row's data source. No answer is 0.

    Args:
        settings: of the reward.
        key: of the settings, for messages.

    Attributes:
        nothing: whether answers are not judged at all.

    Raises:
        ConfigError: there is no such scorer, or it and `reward_api` are both given.
    """

    def __init__(self, settings: RewardSettings, key: str) -> None:
        name = settings.correctness.scorer
        self.nothing = name == "none"
        self.api: Component | None = None
        self.by_user = name == "auto"
        if settings.reward_api is not None:
            if name != "auto":
                raise ConfigError(f"{key}.correctness.scorer", f"{name!r} and reward_api are both given", "Drop one")
            api = make_component("reward_api", "reward_api", {"url": settings.reward_api}, key)
            assert isinstance(api, Component)
            self.api = api

    async def measure(self, trajectory: Trajectory, verdict: float | None, row: Mapping[str, Any] | None) -> Value:
        """The answer's value, usually 0 or 1.

        Raises:
            UnscoredError: it cannot be judged.
        """
        if verdict is not None:
            return Value(verdict)
        if self.api is not None:
            return await self.api.measure(trajectory)
        if self.by_user and trajectory.verdict is not None:
            return Value(trajectory.verdict)
        try:
            return Value(float(numeric_match(trajectory.answer, trajectory.ground_truth)))
        except ValueError as error:
            where = f"data_source {trajectory.data_source!r}, index {trajectory.info.get('index')!r}"
            raise UnscoredError(f"the row cannot be judged ({where}): {error}") from error
