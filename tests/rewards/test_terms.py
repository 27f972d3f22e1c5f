import math

import pytest

from agent_rl.rewards.terms import efficiency, format_term, overlong
from agent_rl.settings import EfficiencySettings, OverlongSettings
from agent_rl.trajectory import StopReason, ToolCall, Trajectory, Turn


def _trajectory(turns=(), **fields):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=list(turns), **fields)


def _calls(*counts):
    return _trajectory([Turn(text="", calls=[ToolCall("python")] * count) for count in counts])


@pytest.mark.parametrize(
    ("counts", "value"), [((), 0.0), ((0, 0), 0.0), ((3,), 0.0), ((2, 2), -0.1), ((1,) * 5, -0.2), ((100,), -0.5)]
)
def test_efficiency(counts, value):
    assert efficiency(_calls(*counts), EfficiencySettings()) == pytest.approx(value)


def test_efficiency_follows_its_settings():
    settings = EfficiencySettings(penalty=0.25, free_calls=0, floor=-2.0)
    assert efficiency(_calls(4), settings) == -1.0
    assert efficiency(_calls(40), settings) == -2.0
    assert efficiency(_calls(40), EfficiencySettings(floor=0.0)) == 0.0


@pytest.mark.parametrize(
    ("malformed", "value"), [([], 0.0), ([None], 0.0), (["bad", None, None, None], -0.25), (["bad", "bad"], -1.0)]
)
def test_format_term(malformed, value):
    assert format_term(_trajectory([Turn(text="", malformed=problem) for problem in malformed])) == value


@pytest.mark.parametrize(("tokens", "value"), [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (130, -1.0)])
def test_overlong_falls_over_its_buffer(tokens, value):
    trajectory = _trajectory(response_tokens=tokens)
    assert overlong(trajectory, OverlongSettings(penalty=1, buffer_tokens=20), 100) == pytest.approx(value)
    assert overlong(trajectory, OverlongSettings(penalty=1), 100) == pytest.approx(value)  # a fifth of the limit
    assert overlong(trajectory, OverlongSettings(penalty=0.5), 100) == pytest.approx(0.5 * value)
    assert overlong(trajectory, OverlongSettings(), 100) == 0.0


def test_no_negative_zero_reaches_the_logs():
    clean = _calls(1)
    for value in (
        efficiency(clean, EfficiencySettings()),
        format_term(clean),
        overlong(clean, OverlongSettings(), 100),
    ):
        assert math.copysign(1.0, value) == 1.0
