"""Which samples are trained on, and what is counted of the others."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from agent_rl.verl_adapter import survivors
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.survivors import SampleFate

KEYS = ["a_0_0", "a_0_1", "b_1_0", "a_3_0", "c_2_0", "c_2_1"]


def test_a_trajectory_stands_by_its_last_sequence() -> None:
    keys = ["u1_0_0", "u1_0_10", "u1_0_9", "u1_1_0", "u2_0_1", "u2_0_0"]
    assert sorted(survivors.finals(keys)) == ["u1_0_10", "u1_1_0", "u2_0_1"]


def test_sequences_of_one_trajectory_are_one_sample() -> None:
    assert survivors.lone(KEYS, 2) == {"b_1_0", "c_2_0", "c_2_1"}
    assert survivors.lone(KEYS, 1) == set()
    assert survivors.lone(KEYS, 1, {"a": 0.5, "b": 0.0}) == {"c_2_0", "c_2_1"}


@pytest.mark.parametrize(
    ("estimator", "n", "sessions", "failed", "usable"),
    [
        ("grpo", 8, 8, range(6), True),
        ("grpo", 8, 8, range(7), False),
        ("reinforce_plus_plus_baseline", 2, 2, [0], False),
        ("my_estimator", 2, 2, [0], False),
        ("grpo", 1, 1, [], True),
        ("grpo", 1, 1, [0], False),
        ("gae", 4, 4, [0, 1, 2], True),
        ("reinforce_plus_plus", 4, 4, [0, 1, 2, 3], False),
        (remax.ESTIMATOR, 2, 3, [1], True),
        (remax.ESTIMATOR, 2, 3, [1, 2], False),  # the greedy session is not a sample
        (remax.ESTIMATOR, 2, 3, [0], False),  # and there is no baseline without it
    ],
)
def test_a_group_is_kept_while_its_estimator_can_use_it(
    estimator: str, n: int, sessions: int, failed: Sequence[int], usable: bool
) -> None:
    rollout = SimpleNamespace(rollout=SimpleNamespace(n=n))
    config = SimpleNamespace(algorithm=SimpleNamespace(adv_estimator=estimator), actor_rollout_ref=rollout)
    assert survivors.is_usable(failed, sessions, config) is usable


def test_sizes_of_what_was_lost_stand_next_to_those_of_what_was_kept() -> None:
    tags = {key: {"response_len": 10 * (row + 1)} for row, key in enumerate(KEYS)}
    kept = survivors.samples("kept", tags, [{"turns": 2}, {}, {"turns": 4}, {}])
    assert sorted(sample.tokens or 0 for sample in kept) == [30, 30, 40, 110]
    metrics = survivors.share_metrics(
        [*kept, SampleFate("lost", 300, 6), SampleFate("lost"), SampleFate("stale", 8, 1)]
    )
    assert metrics["lost_share"] == pytest.approx(2 / 7)
    assert (metrics["lost_tokens"], metrics["lost_turns"]) == (300, 6)
    assert (metrics["kept_tokens"], metrics["kept_turns"]) == (52.5, 3)
    assert (metrics["evicted_share"], metrics["stale_turns"]) == (0, 1)
    assert "evicted_tokens" not in metrics
    assert survivors.share_metrics([])["lost_share"] == 0


def test_the_mean_of_a_validation_is_that_of_the_survivors() -> None:
    uids = ["a", "b", "a", "b", "b"]
    assert survivors.filled(uids, [1.0, 0.0, 0.5, 0.0, None], {"a": 3, "b": 3}) == [1.0, 0.0, 0.5, 0.0, None, 0.75]
    assert survivors.filled(uids, list("xyxyy"), {"a": 3, "b": 4})[5:] == ["x", "y"]
