import asyncio
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.rewards.compose import Reward
from agent_rl.rewards.lab.groups import Spread
from agent_rl.rewards.lab.what_if import advantages, reweighed, what_if
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Score, StopReason, ToolCall, Trajectory, Turn


def group(name, *scores):
    """Of pairs of correctness and efficiency, with as many calls as that says; None is unscored."""
    return [
        Trajectory(
            [],
            StopReason.ANSWERED,
            id=f"{name}_{number}",
            turns=[Turn("", calls=[ToolCall("t")] * (3 - round(10 * pair[1]))), Turn("")] if pair else [],
            score=pair
            and Score(sum(pair), {"correctness": pair[0], "efficiency": pair[1], "format": 0.0, "overlong": 0.0}),
        )
        for number, pair in enumerate(scores)
    ]


def weighed(groups, weight, **settings):
    reward = Reward(RewardSettings.model_validate({"efficiency": {"weight": weight}, **settings}))
    return asyncio.run(reweighed(groups, reward.reweigh))


@pytest.mark.trainer
def test_advantages_are_verls():
    torch = pytest.importorskip("torch")
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    import numpy as np

    rewards = [1.0, 0.0, 0.25, -0.5, 1.0]
    given_B1, mask_B1 = torch.tensor(rewards)[:, None], torch.ones(len(rewards), 1)
    verls, _ = algorithms.compute_grpo_outcome_advantage(given_B1, mask_B1, np.zeros(len(rewards)))
    assert advantages(rewards) == pytest.approx(verls[:, 0].tolist(), abs=1e-5)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_advantages_of_a_group_sum_to_nothing(rewards):
    found = advantages(rewards)
    assert math.fsum(found) == pytest.approx(0, abs=1e-6)
    assert all(a == 0.0 for a in found) or max(rewards) > min(rewards)


def test_the_same_weights_change_nothing():
    groups = [group("a", (1.0, -0.1), (0.0, 0.0)), group("b", (1.0, 0.0), (1.0, 0.0), (1.0, 0.0))]
    report = what_if(groups, weighed(groups, 1))
    assert (report.groups, report.compared, report.flips) == (2, 5, [])
    assert report.without_variance == (1, 1)


def test_a_weight_that_turns_an_advantage_is_reported():
    groups = [group("a", (1.0, -0.4), (0.75, 0.0)), group("b", (1.0, 0.0), (0.0, 0.0))]
    report = what_if(groups, weighed(groups, 0.1))
    assert [flip.trajectory for flip in report.flips] == ["a_0", "a_1"]
    flip = report.flips[0]
    assert flip.reward == (pytest.approx(0.6), pytest.approx(0.96))
    assert flip.advantage[0] < 0 < flip.advantage[1]
    assert report.reward[1].mean > report.reward[0].mean
    assert report.components["efficiency"] == (Spread(-0.1, pytest.approx(0.173205)),) * 2


def test_groups_that_lose_or_gain_their_variance_are_counted():
    groups = [group("a", (1.0, -0.4), (1.0, 0.0), (1.0, 0.0)), group("b", (1.0, 0.0), (0.0, 0.0))]
    off = weighed(groups, 0)
    assert (what_if(groups, off).without_variance, what_if(groups, off).flips) == ((0, 1), [])
    assert what_if(off, groups).without_variance == (1, 0)


def test_unscored_trajectories_move_nothing():
    with_one = [group("a", (1.0, 0.0), None, (0.0, 0.0)), group("b", (1.0, 0.0), None)]
    report = what_if(with_one, weighed(with_one, 2))
    assert report.unscored == (2, 2)
    assert (report.trajectories, report.groups, report.compared) == (5, 1, 2)
    again = [[replace(each, score=each.score or Score(9.0, {"correctness": 9.0})) for each in g] for g in with_one]
    report = what_if(with_one, again)
    assert (report.unscored, report.compared, report.flips) == ((2, 0), 2, [])


def test_counted_components_are_computed_again_by_the_new_settings():
    groups = [group("a", (1.0, -0.4), (0.75, 0.0))]
    reward = Reward(RewardSettings.model_validate({"efficiency": {"penalty": 0.01}}))
    (after,) = asyncio.run(reweighed(groups, reward.reweigh))
    assert [each.score.components["efficiency"] for each in after] == [pytest.approx(-0.04), 0.0]
    assert [each.score.components["correctness"] for each in after] == [1.0, 0.75]


def test_a_component_that_was_not_measured_leaves_it_unscored():
    judge = {"judge": {"kind": "tool_rewards", "gate": "correctness >= 1"}}
    stored = group("a", (1.0, 0.0), (0.0, 0.0))
    first, second = weighed([stored], 1, components=judge)[0]
    assert first.score is None
    assert "judge: it was not measured then" in first.error
    assert second.score.total == 0.0  # its gate is closed
    for each in stored:
        each.score.components["judge"] = 0.5 * each.score.components["correctness"]
        each.info["reward"] = {"logged": {"judge_open": each.score.components["correctness"]}}
    gated, open_to_all = (
        weighed([stored], 1, components={"judge": {**judge["judge"], **more}})[0]
        for more in ({"weight": 2.0, "clip": [0, 0.25]}, {"gate": None})
    )
    assert [each.score.total for each in gated] == [1.5, 0.0]
    assert open_to_all[0].score.total == 1.5
    assert open_to_all[1].score is None
