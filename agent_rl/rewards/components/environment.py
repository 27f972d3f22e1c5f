"""`environment`: a component for one part of the reward that the row's environment computed."""

from __future__ import annotations

from typing import ClassVar

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory


class EnvironmentConfig(ComponentConfig):
    """Selects a part of the environment's reward."""

    part: str | None = None
    """Name of the part in the result of `get_reward`; null means the component's own name."""
    optional: bool = False
    """Whether a part that is missing counts as 0, provided that the trajectory has other parts."""


class EnvironmentPart(Component, kind="environment"):
    """A part of `Trajectory.rewards`."""

    Config: ClassVar = EnvironmentConfig
    config: EnvironmentConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the part's value.

        Raises:
            UnscoredError: the trajectory has no such part.
        """
        part = self.config.part or self.name
        if part not in trajectory.rewards:
            if self.config.optional and trajectory.rewards:
                return Value(0.0)
            known = ", ".join(trajectory.rewards) or "none"
            raise UnscoredError(f"component {self.name!r}: the reward has no part {part!r} (parts: {known})")
        return Value(trajectory.rewards[part])
