"""Reward shaping: step rewards of tools, and differences of a potential.

Both use the intermediate steps and give one number for the trajectory, as every component does. They do not assign it
to turns; the notes list the values of the steps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Trajectory, call_key

__all__ = ["Potential", "PotentialConfig", "ToolRewards", "ToolRewardsConfig"]


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


class PotentialConfig(ComponentConfig):
    """The potential function and the discount."""

    function: str
    """`path/to/file.py:phi` or `package.module.phi`: `phi(trajectory, turns_done) -> float`."""
    gamma: float = Field(default=1.0, gt=0, le=1)


class Potential(Component, kind="potential"):
    """Potential-based shaping (Ng, Harada and Russell 1999): the sum of `gamma^t * (gamma * phi(t+1) - phi(t))`.

    `phi` measures the progress after `turns_done` turns, from 0 (only the prompt) to all; it must not read later turns.
    The sum telescopes to `gamma^T * phi(T) - phi(0)`: only the final progress counts, and with `gamma: 1` not the
    number of turns, so that no detour pays. A `phi` with the same final value for all changes no order within a group.
    The notes list the potentials.
    """

    Config: ClassVar = PotentialConfig
    config: PotentialConfig

    def __init__(self, name: str, config: PotentialConfig) -> None:
        super().__init__(name, config)
        place = Place(f"agent_rl.reward.components.{name}.config.function")
        self._phi: Callable[[Trajectory, int], float] = find_object(config.function, place)

    async def measure(self, trajectory: Trajectory) -> Value:
        """The discounted sum of the differences.

        Raises:
            UnscoredError: a potential is not finite.
        """
        potentials = await asyncio.to_thread(self._potentials, trajectory)  # the function may take its time
        gamma = self.config.gamma
        steps = [gamma**turn * (gamma * after - before) for turn, (before, after) in enumerate(pairwise(potentials))]
        return Value(math.fsum(steps) + 0.0, notes={"potentials": potentials})

    def _potentials(self, trajectory: Trajectory) -> list[float]:
        values = [float(self._phi(trajectory, done)) for done in range(len(trajectory.turns) + 1)]
        for done, value in enumerate(values):
            if not math.isfinite(value):
                raise UnscoredError(f"component {self.name!r}: the potential after {done} turns is {value}")
        return values
