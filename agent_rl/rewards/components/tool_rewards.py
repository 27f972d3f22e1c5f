"""`tool_rewards`: a component that sums the step rewards of tools, turns and hooks."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import ClassVar

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory, call_key


class ToolRewardsConfig(ComponentConfig):
    """Selects the step rewards to sum."""

    tools: tuple[str, ...] | None = None
    """Names of tools to include, with wildcards. Null means all tools, plus the rewards that loops and hooks set as
    `Turn.notes["reward"]`."""
    repeats: bool = False
    """Whether a positive reward counts again for a repeated call; negative rewards always count."""


class ToolRewards(Component, kind="tool_rewards"):
    """The sum of `ToolResult.reward` and `Turn.notes["reward"]`."""

    Config: ClassVar = ToolRewardsConfig
    config: ToolRewardsConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the sum of the step rewards; the notes list them.

        Raises:
            UnscoredError: a step reward is not a finite number.
        """
        values, per_turn = [], [0.0] * len(trajectory.turns)
        for number, where, reward in self._rewards(trajectory):
            if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
                raise UnscoredError(f"component {self.name!r}: {where} has the reward {reward!r}, not a finite number")
            values.append(float(reward))
            per_turn[number - 1] += float(reward)
        return Value(math.fsum(values), notes={"rewards": values}, per_turn=per_turn)

    def _rewards(self, trajectory: Trajectory) -> list[tuple[int, str, object]]:
        """Return, for each reward to sum, the turn's number (from 1), a location for error messages, and the value."""
        config, calls, rewards = self.config, set[str](), list[tuple[int, str, object]]()
        for number, turn in enumerate(trajectory.turns, start=1):
            for call, result in zip(turn.calls, turn.results, strict=False):
                key, reward = call_key(call), result.reward
                is_repeat = key in calls and not config.repeats
                calls.add(key)
                counts = config.tools is None or any(fnmatchcase(result.name, name) for name in config.tools)
                if reward is not None and counts and not (is_repeat and reward > 0):
                    rewards.append((number, f"tool {result.name!r} in turn {number}", reward))
            if config.tools is None and turn.notes.get("reward") is not None:
                rewards.append((number, f"the note of turn {number}", turn.notes["reward"]))
        return rewards
