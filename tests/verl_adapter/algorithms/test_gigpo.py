"""GiGPO by hand: groups of trajectories, and of turns in one state."""

import pytest

from agent_rl.verl_adapter.algorithms.gigpo import gigpo_advantages

REWARDS = [[0.0, 1.0], [0.0, 0.0, 3.0]]
STATES = [["a", "b"], ["a", "b", "a"]]


def test_the_advantage_of_a_turn_is_that_of_its_trajectory_and_of_its_state():
    advantages, lone = gigpo_advantages(REWARDS, "pp", STATES, weight=2.0, discount=0.5, by_std=False)
    # Trajectories: 1 and 3, so -1 and +1. To go: [0.5, 1], [0.75, 1.5, 3]. State a: 0.5, 0.75, 3; state b: 1, 1.5.
    mean = 4.25 / 3
    assert advantages[0].tolist() == pytest.approx([-1 + 2 * (0.5 - mean), -1 + 2 * (1 - 1.25)])
    assert advantages[1].tolist() == pytest.approx([1 + 2 * (0.75 - mean), 1 + 2 * 0.25, 1 + 2 * (3 - mean)])
    assert lone == 0


def test_a_state_seen_once_adds_nothing_and_is_counted():
    advantages, lone = gigpo_advantages(REWARDS, "pp", [["a", "b"], ["a", "c", "d"]], by_std=False, weight=0.0)
    assert [own.tolist() for own in advantages] == [[-1, -1], [1, 1, 1]]
    weighted, _ = gigpo_advantages(REWARDS, "pp", [["a", "b"], ["a", "c", "d"]], by_std=False)
    assert weighted[1].tolist()[1:] == [1, 1]
    assert weighted[0][0] != -1
    assert lone == pytest.approx(3 / 5)


def test_groups_of_prompts_do_not_share_states_and_are_scaled_by_their_spread():
    advantages, lone = gigpo_advantages([[1.0], [3.0], [7.0]], "ppq", [["a"], ["a"], ["a"]])
    root = 0.5**0.5  # of both the trajectories and the turns
    assert [own[0] for own in advantages] == pytest.approx([-2 * root, 2 * root, 0], abs=1e-5)
    assert lone == pytest.approx(1 / 3)


def test_rows_without_states_have_the_advantage_of_their_trajectory():
    advantages, lone = gigpo_advantages(REWARDS, "pp", [[], []], by_std=False)
    assert ([own.tolist() for own in advantages], lone) == ([[-1, -1], [1, 1, 1]], 1)
