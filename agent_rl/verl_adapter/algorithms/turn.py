"""Assigns credit to individual turns with an exact gradient (`algo=turn`).

The advantage of a turn is its reward-to-go minus the mean reward-to-go of the prompt's other samples that reach the
same turn. Published scripts instead normalize the rewards at each turn index and add up the results from a turn to the
end, which yields a mean gradient that can point away from the exact gradient
(https://github.com/verl-project/verl/issues/7244).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

ESTIMATOR = "agent_rl_turn"
"""The value of `algorithm.adv_estimator` that selects this estimator."""


def turn_advantages(
    rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], discount: float = 1.0
) -> list[np.ndarray[Any, Any]]:
    """Return each turn's advantage: its reward-to-go minus the mean reward-to-go of the other members at this turn.

    If only one member reaches a turn, the baseline of this turn is 0. A group with only one member gets advantage 0,
    because training leaves such groups out. No advantage is divided by a standard deviation.

    With a loss that sums over tokens and divides by a constant, the mean gradient is the gradient of the expected
    reward if:

    - the members of a group are independent given the prompt: no reward compares them (as `normalize: group` and group
      components do), and no group is refilled, filtered or evicted because of its outcome;
    - the failure of a member does not depend on its actions;
    - a turn's reward depends on nothing that follows the turn;
    - every sampled token is trained on exactly once, in one update per batch, by the policy that sampled the token, and
      the gradient is not clipped;
    - the discount is 1, and neither a KL term nor a rollout correction is used.

    Args:
        rewards: the reward of each turn, one sequence (turns) per trajectory.
        groups: the prompt of each trajectory.
        discount: per-turn discount of later rewards.

    Returns:
        One array (turns) per trajectory.
    """
    advantages = [np.zeros(len(own)) for own in rewards]
    for places in members(groups):
        if len(places) < 2:
            continue
        table = np.full((len(places), max(len(rewards[place]) for place in places)), np.nan)
        for row, place in enumerate(places):
            table[row, : len(rewards[place])] = to_go(rewards[place], discount)
        others = np.isfinite(table).sum(axis=0) - 1
        baselines = (np.nansum(table, axis=0) - table) / np.maximum(others, 1)
        table -= np.where(others > 0, baselines, 0.0)
        for row, place in enumerate(places):
            advantages[place] = table[row, : len(rewards[place])]
    return advantages


def to_go(rewards: Sequence[float], discount: float) -> np.ndarray[Any, Any]:
    """For each turn, return the discounted sum of its reward and all later rewards."""
    sums = np.array(rewards, dtype=float)
    for turn in range(len(sums) - 2, -1, -1):
        sums[turn] += discount * sums[turn + 1]
    return sums


def members(groups: Sequence[Hashable]) -> list[list[int]]:
    """Return the positions of each group's members."""
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    return list(places.values())
