"""GiGPO, group-in-group policy optimization (`algo=gigpo`; Feng et al. 2025, https://arxiv.org/abs/2505.10978).

Among the samples of one prompt, turns that start in the same state form an additional group. GiGPO is a heuristic: its
mean gradient is not the gradient of the expected reward, because a sample that returns to a state is compared with
itself, and equal states may have different histories (HGPO, https://arxiv.org/abs/2602.22817).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from agent_rl.verl_adapter.algorithms.turn import members, to_go

ESTIMATOR = "agent_rl_gigpo"
"""The value of `algorithm.adv_estimator` that selects this estimator."""
EPSILON = 1e-6
"""The number that verl adds to a standard deviation before dividing by it."""


def gigpo_advantages(
    rewards: Sequence[Sequence[float]],
    groups: Sequence[Hashable],
    states: Sequence[Sequence[Hashable]],
    weight: float = 1.0,
    discount: float = 0.95,
    by_std: bool = True,
) -> tuple[list[np.ndarray[Any, Any]], float]:
    """Return each turn's advantage: its trajectory's advantage plus `weight` times its state's advantage.

    A trajectory's advantage compares its reward with the rewards of all samples of its prompt. A state's advantage
    compares the turn's discounted reward-to-go with those of all turns in the group that start in this state; if there
    is only one such turn, the advantage is 0.

    Args:
        rewards: the reward of each turn, one sequence (turns) per trajectory.
        groups: the prompt of each trajectory.
        states: the state before each turn, one sequence (turns) per trajectory; if empty, no states are compared.
        weight: weight of the state-level advantage.
        discount: per-turn discount that the state-level advantage applies to later rewards.
        by_std: whether to divide each difference from a mean by the standard deviation of the compared values.

    Returns:
        One array (turns) per trajectory, and the share of turns whose state occurs in no other turn of the group.
    """
    advantages = [np.zeros(len(own)) for own in rewards]
    compared = 0
    for places in members(groups):
        totals = _compared([sum(rewards[place]) for place in places], by_std)
        of_state: dict[Hashable, list[tuple[int, int]]] = {}
        returns = {place: to_go(rewards[place], discount) for place in places}
        for place, total in zip(places, totals, strict=True):
            advantages[place] += total
            for turn, state in enumerate(states[place]):
                of_state.setdefault(state, []).append((place, turn))
        for visits in of_state.values():
            compared += len(visits) if len(visits) > 1 else 0
            values = _compared([returns[place][turn] for place, turn in visits], by_std)
            for (place, turn), value in zip(visits, values, strict=True):
                advantages[place][turn] += weight * value
    return advantages, 1 - compared / sum(map(len, rewards))


def _compared(values: Sequence[float], by_std: bool) -> np.ndarray[Any, Any]:
    """Return each value's difference from the mean, divided by the standard deviation if `by_std`; 0 for one value."""
    differences: np.ndarray[Any, Any] = np.array(values) - np.mean(values)
    if len(values) > 1 and by_std:
        differences /= np.std(values, ddof=1) + EPSILON
    return differences
