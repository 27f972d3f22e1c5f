"""`tool_rewards`: the step rewards of tools as one number for the trajectory; the notes list those of the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory, call_key

__all__ = ["ToolRewards", "ToolRewardsConfig"]


_REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "last": lambda values: values[-1],
    "max": max,
}


class ToolRewardsConfig(ComponentConfig):
    """Which step rewards count, and how they are combined."""

    reduce: Literal["sum", "mean", "last", "max"] = "sum"
    tools: tuple[str, ...] | None = None
    """Names of tools, with wildcards; null: every tool, and `Turn.notes["reward"]`, which a loop or a hook sets."""
    repeats: bool = False
    """Whether a repeated call is rewarded again; a negative reward always counts."""
    default: float = 0.0
    """The value of a trajectory without step rewards."""


class ToolRewards(Component, kind="tool_rewards"):
    """`ToolResult.reward` and `Turn.notes["reward"]` combined into one number."""

    Config: ClassVar = ToolRewardsConfig
    config: ToolRewardsConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """The combined step rewards.

        Raises:
            UnscoredError: one of them is not a finite number.
        """
        values = []
        for where, reward in self._rewards(trajectory):
            if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
                raise UnscoredError(f"component {self.name!r}: {where} has the reward {reward!r}")
            values.append(float(reward))
        if not values:
            return Value(self.config.default)
        return Value(_REDUCTIONS[self.config.reduce](values) + 0.0, notes={"rewards": values})

    def _rewards(self, trajectory: Trajectory) -> list[tuple[str, object]]:
        """Each step reward with its place in the trajectory, for errors."""
        config, seen, found = self.config, set[str](), list[tuple[str, object]]()
        for number, turn in enumerate(trajectory.turns, start=1):
            for call, result in zip(turn.calls, turn.results, strict=False):
                key, reward = call_key(call), result.reward
                again = key in seen and not config.repeats
                seen.add(key)
                wanted = config.tools is None or any(fnmatchcase(result.name, name) for name in config.tools)
                if reward is not None and wanted and not (again and reward > 0):
                    found.append((f"tool {result.name!r} in turn {number}", reward))
            if config.tools is None and turn.notes.get("reward") is not None:
                found.append((f"the note of turn {number}", turn.notes["reward"]))
        return found
