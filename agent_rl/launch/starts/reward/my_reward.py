"""The reward of `my_reward`: whether the answer is right, and a small bonus for brevity."""

from __future__ import annotations

import re
from typing import Any

from agent_rl.rewards import Component, Value
from agent_rl.trajectory import Trajectory


def score(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    """Return 1 if the last number in the answer is right, otherwise 0, for the `correctness` component."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", solution_str)
    return float(bool(numbers) and float(numbers[-1]) == float(ground_truth))


class MyReward(Component):
    """1 for an episode of one or two turns, and less for each additional turn."""

    async def measure(self, trajectory: Trajectory) -> Value:
        """The trajectory has turns, calls, results, the answer and the row, and a reward may depend on any of them."""
        turns = len(trajectory.turns)
        return Value(min(1.0, 2 / turns) if turns else 0.0)
