import pytest
from pydantic import ValidationError

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.terms import Schedule, TermSettings, parse_gate


@pytest.mark.parametrize(
    ("from_step", "weights"),
    [(10, {0: 0.0, 10: 0.0, 15: 0.25, 20: 0.5, 30: 1.0, 99: 1.0}), (29, {10: 0.0, 29: 0.0, 30: 1.0})],
)
def test_a_weight_moves_between_two_steps(from_step, weights):
    schedule = Schedule(start=0, end=1, from_step=from_step, to_step=30)
    assert {step: schedule.at(step) for step in weights} == pytest.approx(weights)
    assert schedule.at(None) == 1.0


def test_a_gate_is_several_comparisons():
    first, second = parse_gate("correctness >= 1 and helpful.tone != -0.5e-1")
    assert (first.name, first.number) == ("correctness", 1.0)
    assert (second.name, second.number) == ("helpful.tone", -0.05)
    assert first.holds(1.0, first.number)
    assert not first.holds(0.99, first.number)
    assert parse_gate(None) == ()


@pytest.mark.parametrize(
    "gate", ["correctness", "correctness => 1", "correctness >= one", "", "a > 1 or b > 1", "a>1 and"]
)
def test_a_gate_that_is_none_is_refused(gate):
    with pytest.raises(ValidationError, match="is not a comparison of a component with a number"):
        TermSettings(gate=gate)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"efficiency": {"weight": {"start": 0}}}, r"agent_rl\.reward\.efficiency\.weight\.(end|to_step): missing"),
        ({"efficiency": {"weight": {"start": 0, "end": 1, "to_step": 5, "from": 1}}}, "weight.from: unknown key"),
        ({"efficiency": {"weight": {"start": 0, "end": 1, "from_step": 5, "to_step": 5}}}, "is not after from_step=5"),
        (
            {"efficiency": {"weight": "much"}},
            r"reward\.efficiency\.weight: expected a number or a mapping, got 'much'",
        ),
        ({"efficiency": {"clip": [1, 0]}}, r"efficiency\.clip: .*the first number must be below"),
        (
            {"efficiency": {"normalize": "z"}},
            r"efficiency\.normalize: expected `group`, `sigmoid` or .*, got 'z'",
        ),
        ({"components": {"format": {"kind": "judge"}}}, "cannot have the name 'format'"),
        ({"components": {"a b": {"kind": "judge"}}}, "cannot have the name 'a b'"),
        ({"components": {"mine": {"weight": 1}}}, r"agent_rl\.reward\.components\.mine\.kind: missing"),
        ({"components": {"mine": {"kind": "judge", "wieght": 1}}}, r"components\.mine\.wieght: unknown .*'weight'"),
        (
            {"max_unscored_share": 2},
            r"agent_rl\.reward\.max_unscored_share: expected a number of .*at most 1",
        ),
    ],
)
def test_a_mistake_is_named_by_its_key(section, message):
    with pytest.raises(ConfigError, match=message):
        AgentRLSettings.from_config({"agent_rl": {"reward": section}})
