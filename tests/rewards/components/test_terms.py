import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.rewards.components.terms import efficiency, format_term, overlong
from agent_rl.settings import EfficiencySettings, FormatSettings, OverlongSettings
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

amounts = st.floats(0, 100, allow_nan=False)
efficiency_settings = st.builds(
    EfficiencySettings,
    penalty=amounts,
    free_calls=st.integers(0, 5),
    floor=st.floats(-100, 0),
    per_error=amounts,
    per_repeat=amounts,
    per_1000_tokens=amounts,
)
names = st.sampled_from(["python", "search"])
turns = st.builds(
    Turn,
    text=st.just(""),
    calls=st.lists(st.builds(ToolCall, names, st.fixed_dictionaries({"q": st.integers(0, 1)})), max_size=3),
    results=st.lists(
        st.builds(ToolResult, st.just(""), names, st.sampled_from(["a", "b"]), st.sampled_from(ToolStatus)), max_size=3
    ),
    malformed=st.sampled_from([None, "bad"]),
    tool_seconds=amounts,
    generation_seconds=amounts,
)
trajectories = st.builds(
    Trajectory,
    prompt=st.just([]),
    stop_reason=st.just(StopReason.ANSWERED),
    turns=st.lists(turns, max_size=4),
    response_tokens=st.integers(0, 10_000),
)


def _trajectory(turns=(), **fields):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=list(turns), **fields)


def _calls(*counts):
    return _trajectory(
        [*(Turn(text="", calls=[ToolCall("python")] * count) for count in counts), Turn(text="the answer")]
    )


def test_calls_that_are_the_answer_are_not_charged():
    """A tool that hands the answer in, and functions of the row that nothing runs; a call that no turn ran is."""
    work = [Turn(text="", calls=[ToolCall("python")])] * 3
    submitted = ToolResult("", "submit_answer", "done", answer="5")
    submits = Turn(text="", calls=[ToolCall("submit_answer")], results=[submitted])
    declared = Turn(text="", calls=[ToolCall("book"), ToolCall("pay")])
    for last in (submits, declared):
        assert efficiency(_trajectory([*work, last]), EfficiencySettings()) == 0.0
    ended = Trajectory(prompt=[], stop_reason=StopReason.MAX_TURNS, turns=[*work, declared])
    assert efficiency(ended, EfficiencySettings()) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("counts", "value"), [((), 0.0), ((0, 0), 0.0), ((3,), 0.0), ((2, 2), -0.1), ((1,) * 5, -0.2), ((100,), -0.5)]
)
def test_efficiency_falls_with_calls_down_to_the_floor(counts, value):
    assert efficiency(_calls(*counts), EfficiencySettings()) == pytest.approx(value)


def test_efficiency_counts_what_its_settings_name():
    call, ok = ToolCall("python", {"code": "1"}), ToolResult("", "python", "1")
    failed = ToolResult("", "python", "boom", ToolStatus.ERROR)
    used = _trajectory(
        [Turn("", calls=[call, call], results=[ok, ok], tool_seconds=2.0), Turn("", 0, [call], [failed])],
        response_tokens=500,
    )
    none = {"penalty": 0.0, "floor": -100.0}
    assert efficiency(used, EfficiencySettings(**none)) == 0.0
    for name, value in {
        "per_error": -1.0,
        "per_repeat": -2.0,
        "per_1000_tokens": -0.5,
    }.items():
        assert efficiency(used, EfficiencySettings(**none, **{name: 1.0})) == pytest.approx(value), name
    both = EfficiencySettings(penalty=0.1, free_calls=0, per_error=0.25, floor=-0.5)
    assert efficiency(used, both) == -0.5  # the floor bounds the sum
    assert efficiency(_calls(40), EfficiencySettings(floor=0.0)) == 0.0


@given(trajectories, turns, efficiency_settings, st.integers(0, 5_000))
def test_using_more_never_raises_efficiency(trajectory, turn, settings, tokens):
    longer = copy.deepcopy(trajectory)
    longer.turns.append(turn)
    longer.response_tokens += tokens
    assert settings.floor <= efficiency(longer, settings) <= efficiency(trajectory, settings) <= 0.0


@given(trajectories, turns, st.builds(FormatSettings, turns=st.integers(1, 5)))
def test_the_format_falls_with_every_malformed_turn_and_never_rises(trajectory, turn, settings):
    longer = copy.deepcopy(trajectory)
    longer.turns.append(turn)
    assert -1.0 <= format_term(longer, settings) <= format_term(trajectory, settings) <= 0.0


@given(st.integers(1, 10_000), st.data())
def test_overlong_falls_from_zero_to_minus_its_penalty(limit, data):
    settings = OverlongSettings(penalty=data.draw(amounts), buffer_tokens=data.draw(st.none() | st.integers(1, limit)))
    fewer, more = sorted(data.draw(st.tuples(*[st.integers(0, 20_000)] * 2)))
    values = [overlong(_trajectory(response_tokens=tokens), settings, limit) for tokens in (fewer, more)]
    assert -settings.penalty <= values[1] <= values[0] <= 0.0


@pytest.mark.parametrize(
    ("malformed", "value"),
    [([], 0.0), ([None], 0.0), (["bad", None], -1 / 3), (["bad", None, None, None], -1 / 3), (["bad"] * 4, -1.0)],
)
def test_format_counts_malformed_turns_up_to_a_limit(malformed, value):
    turns = [Turn(text="", malformed=problem) for problem in malformed]
    assert format_term(_trajectory(turns), FormatSettings()) == pytest.approx(value)
    assert format_term(_trajectory(turns), FormatSettings(turns=1)) == (-1.0 if "bad" in malformed else 0.0)


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
        format_term(clean, FormatSettings()),
        overlong(clean, OverlongSettings(), 100),
    ):
        assert math.copysign(1.0, value) == 1.0
