import math
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.errors import ConfigError
from agent_rl.rewards.combine import Normalizer, combiner
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory

NOTHING = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED)
VALUES, WEIGHTS = {"a": 0.5, "b": -2.0, "c": 9.0}, {"a": 1.0, "b": 0.5, "c": 0.0}


def total(values, weights, **settings):
    return combiner(RewardSettings.model_validate(settings), "agent_rl.reward")(values, weights, NOTHING)


@pytest.mark.parametrize(("rule", "expected"), [("sum", -0.5), ("product", -0.5), ("min", -1.0), ("max", 0.5)])
def test_values_are_combined_by_their_weights(rule, expected):
    assert total(VALUES, WEIGHTS, combine=rule) == pytest.approx(expected)


def test_a_users_function_can_combine_the_values(tmp_path: Path):
    (tmp_path / "rule.py").write_text("def best(values, weights, trajectory):\n    return max(values.values())\n")
    assert total(VALUES, WEIGHTS, combine=f"{tmp_path}/rule.py:best") == 9.0


ORDER = {"combine": "lexicographic", "lexicographic": {"order": ["correctness", "efficiency"], "levels": 10}}
PAIR = st.tuples(st.integers(0, 10), st.integers(0, 10))


@given(PAIR, PAIR)
def test_lexicographic_is_the_order_of_pairs(one, other):
    def of(pair):
        return total({"correctness": pair[0] / 10, "efficiency": -0.5 + pair[1] / 20}, {}, **ORDER)

    assert (of(one) < of(other)) == (one < other)
    assert 0 <= of(one) < 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"combine": "summ.e"}, r"agent_rl\.reward\.combine: there is no module 'summ'"),
        ({"combine": "avg"}, r"agent_rl\.reward\.combine: there is no combine 'avg'. Known: .*product, sum"),
        ({"combine": "math.pi"}, "'math.pi' is not a function"),
        ({"combine": "lexicographic", "lexicographic": {"order": ["tone"]}}, "there is no component 'tone'"),
        (
            {
                "combine": "lexicographic",
                "lexicographic": {"order": ["tone"]},
                "components": {"tone": {"kind": "judge"}},
            },
            "the values of 'tone' have no bounds",
        ),
    ],
)
def test_a_wrong_combination_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        total({}, {}, **settings)


SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (None, [3.0], [3.0]),
        ([1.0, 10.0], [1.0, 5.5, 10.0, 19.0], [0.0, 0.5, 1.0, 2.0]),
        ("sigmoid", [0.0, math.log(3), -1e4, 1e4], [0.5, 0.75, 0.0, 1.0]),
        ("tanh", [0.0, 1e4], [0.0, 1.0]),
        ("group", [1.0, 3.0], [-1.0, 1.0]),
        ("group", [2.0, 2.0], [0.0, 0.0]),
        ("group", [], []),
    ],
)
def test_values_are_scaled_by_each_kind(kind, values, expected):
    assert Normalizer(kind)(values) == pytest.approx(expected)


@given(SAMPLES)
def test_a_running_scale_is_that_of_all_that_came_before(values):
    normalizer = Normalizer("running")
    scores = [number for value in values for number in normalizer([value])]
    spread = pstdev(values)
    if spread > 1e-3:
        assert scores[-1] == pytest.approx((values[-1] - fmean(values)) / spread, rel=1e-3, abs=1e-3)
    assert scores[0] == 0.0


@given(SAMPLES)
def test_a_group_is_centred(values):
    assert sum(Normalizer("group")(values)) == pytest.approx(0.0, abs=1e-3)
