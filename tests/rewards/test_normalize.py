import math
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.rewards.normalize import Normalizer

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


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


@given(VALUES)
def test_a_running_scale_is_that_of_all_that_came_before(values):
    normalizer = Normalizer("running")
    scores = [number for value in values for number in normalizer([value])]
    spread = pstdev(values)
    if spread > 1e-3:
        assert scores[-1] == pytest.approx((values[-1] - fmean(values)) / spread, rel=1e-3, abs=1e-3)
    assert scores[0] == 0.0


@given(VALUES)
def test_a_group_is_centred(values):
    assert sum(Normalizer("group")(values)) == pytest.approx(0.0, abs=1e-3)
