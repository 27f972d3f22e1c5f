import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.errors import ConfigError
from agent_rl.rewards.source_reward import SourceReward, normalized
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory

NOTHING = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED)
VALUES, WEIGHTS = {"a": 0.5, "b": -2.0, "c": 9.0}, {"a": 1.0, "b": 0.5, "c": 0.0}


def total(values, weights, **settings):
    source = SourceReward(RewardSettings.model_validate(settings), "agent_rl.reward", None, False, {})
    return source.combine(values, weights, NOTHING)


def test_values_are_added_by_their_weights():
    assert total(VALUES, WEIGHTS) == pytest.approx(-0.5)


def test_a_users_function_can_combine_the_values(tmp_path: Path):
    (tmp_path / "rule.py").write_text("def best(values, weights, trajectory):\n    return max(values.values())\n")
    assert total(VALUES, WEIGHTS, combine=f"{tmp_path}/rule.py:best") == 9.0


@pytest.mark.parametrize(
    ("combine", "message"),
    [
        ("summ.e", r"agent_rl\.reward\.combine: there is no module 'summ'"),
        ("math.pi", "'math.pi' is not a function"),
    ],
)
def test_a_wrong_function_is_refused(combine, message):
    with pytest.raises(ConfigError, match=message):
        total({}, {}, combine=combine)


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
    assert normalized(kind, values) == pytest.approx(expected)


@given(SAMPLES)
def test_a_group_is_centred(values):
    assert sum(normalized("group", values)) == pytest.approx(0.0, abs=1e-3)
