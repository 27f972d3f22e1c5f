"""`tool_rewards`: a component that sums the step rewards of tools, turns and hooks."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import ClassVar

from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.trajectory import Trajectory, call_key


class ToolRewardsConfig(ComponentConfig):
    """Selects the step rewards that enter the sum."""

    tools: tuple[str, ...] | None = None
    """Names of tools, with wildcards. Null means all tools and `Turn.notes["reward"]`, set by a loop or a hook."""
    repeats: bool = False
    """Whether a positive reward counts again for a repeated call; negative rewards always count."""


class ToolRewards(Component, kind="tool_rewards"):
    """The sum of `ToolResult.reward` and `Turn.notes["reward"]`."""

    Config: ClassVar = ToolRewardsConfig
    config: ToolRewardsConfig

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the sum of the step rewards; the notes list them."""
        rewards, per_turn = self._rewards(trajectory), [0.0] * len(trajectory.turns)
        for number, reward in rewards:
            per_turn[number] += reward
        values = [reward for _, reward in rewards]
        return Value(math.fsum(values), notes={"rewards": values}, per_turn=per_turn)

    def _rewards(self, trajectory: Trajectory) -> list[tuple[int, float]]:
        """Return the step rewards that enter the sum, with the positions of their turns."""
        config, calls, rewards = self.config, set[str](), list[tuple[int, float]]()
        for number, turn in enumerate(trajectory.turns):
            for call, result in zip(turn.calls, turn.results, strict=False):
                key, reward = call_key(call), result.reward
                is_repeat = key in calls and not config.repeats
                calls.add(key)
                counts = config.tools is None or any(fnmatchcase(result.name, name) for name in config.tools)
                if reward is not None and counts and not (is_repeat and reward > 0):
                    rewards.append((number, float(reward)))
            if config.tools is None and turn.notes.get("reward") is not None:
                rewards.append((number, float(turn.notes["reward"])))
        return rewards
