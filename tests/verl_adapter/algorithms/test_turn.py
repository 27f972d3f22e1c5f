"""Turn credit: numbers by hand, and the mean gradient of an enumerated process."""

import itertools
import math

import numpy as np
import pytest

from agent_rl.verl_adapter.algorithms.turn import to_go, turn_advantages


def rounded(advantages):
    return [[round(float(each), 9) for each in own] for own in advantages]


def test_the_baseline_is_the_mean_of_the_others_that_reach_the_turn():
    rewards = [[1.0, 0.0, 2.0], [0.0, 1.0], [4.0]]
    # To go: [3, 2, 2], [1, 1], [4]. Alone in turn 3: its reward to go.
    assert rounded(turn_advantages(rewards, "aaa")) == [[0.5, 1.0, 2.0], [-2.5, -1.0], [2.0]]


def test_groups_are_separate_and_one_member_alone_is_left_out():
    rewards = [[1.0], [5.0, 5.0], [3.0]]
    assert rounded(turn_advantages(rewards, "aba")) == [[-2.0], [0.0, 0.0], [2.0]]


def test_a_discount_applies_to_later_turns():
    assert to_go([1.0, 2.0, 4.0], 0.5).tolist() == [3.0, 4.0, 4.0]
    assert rounded(turn_advantages([[0.0, 4.0], [1.0]], "aa", 0.5)) == [[1.0, 4.0], [-1.0]]


LOGITS = np.array([0.3, -0.4, 0.8, -0.1])
"""Of going on after each turn; the process has at most five turns."""
OUTCOME = [0.2, 0.6, 0.9, 0.5, 0.1]
"""Reward of ending after so many turns, next to 0.3 for each turn taken."""


def episodes():
    """Rewards, probability and its gradient of each way to go through the process."""
    go_on = 1 / (1 + np.exp(-LOGITS))
    for length in range(1, len(LOGITS) + 2):
        scores = [np.zeros(len(LOGITS)) for _ in range(length)]
        probability = 1.0
        for turn in range(min(length, len(LOGITS))):
            goes = turn < length - 1
            probability *= go_on[turn] if goes else 1 - go_on[turn]
            scores[turn][turn] = (1 - go_on[turn]) if goes else -go_on[turn]
        yield [0.3] * (length - 1) + [0.3 + OUTCOME[length - 1]], probability, scores


@pytest.mark.parametrize("members", [2, 3, 4])
def test_the_mean_gradient_of_all_groups_is_the_exact_one(members):
    ways = list(episodes())
    exact = sum(probability * sum(rewards) * sum(scores) for rewards, probability, scores in ways)
    mean = np.zeros(len(LOGITS))
    total = 0.0
    for group in itertools.product(ways, repeat=members):
        probability = math.prod(way[1] for way in group)
        advantages = turn_advantages([way[0] for way in group], ["p"] * members)
        terms = [a * s for own, way in zip(advantages, group, strict=True) for a, s in zip(own, way[2], strict=True)]
        mean += probability * sum(terms) / members
        total += probability
    assert total == pytest.approx(1)
    assert mean == pytest.approx(exact, rel=1e-6, abs=1e-12)
