import copy
import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings, RewardSettings
from agent_rl.settings.reward import Schedule, TermSettings, parse_gate


def read(models: dict[str, Any]) -> Any:
    return AgentRLSettings.from_config({"agent_rl": {"reward": {"models": models}}}).reward.models


def test_a_path_is_enough() -> None:
    model = read({"nice": {"path": "m/rm"}})["nice"]
    assert (model.kind, model.engine, model.placement, model.tensor_parallel_size) == (
        "discriminative",
        "sglang",
        "own",
        1,
    )


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"nice": {}}, r"agent_rl\.reward\.models\.nice\.path"),
        ({"nice": {"path": "rm", "placemnt": "own"}}, "placement"),
        ({"nice": {"path": "rm", "placement": "in_turn"}}, r"placement: expected `own` or `shared`"),
        ({"nice": {"path": "rm", "gpu_memory_utilization": 1.5}}, "gpu_memory_utilization"),
        ({"not nice": {"path": "rm"}}, "not nice"),
    ],
)
def test_an_invalid_served_model_is_refused(models: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(models)


def weights(reward: RewardSettings) -> tuple[Any, ...]:
    return reward.efficiency.weight, reward.format.weight, reward.overlong.weight


def section(reward: dict[str, Any]) -> RewardSettings:
    return AgentRLSettings.from_config({"agent_rl": {"reward": reward}}).reward


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, (0, 0, 0)),
        ({"efficiency": {}}, (0, 0, 0)),
        ({"efficiency": {"free_calls": 3}}, (1, 0, 0)),
        ({"format": {"turns": 2}}, (0, 0.2, 0)),
        ({"overlong": {"penalty": 1.0}}, (0, 0, 1)),
        ({"efficiency": {"gate": "correctness >= 1"}, "format": {"clip": None}}, (1, 0.2, 0)),
        ({"efficiency": {"penalty": 1, "weight": 0}, "format": {"weight": 0.5}}, (0, 0.5, 0)),
    ],
)
def test_a_term_counts_where_a_key_of_it_is_written(reward: dict[str, Any], expected: tuple[float, ...]) -> None:
    """Also after every way on which settings travel: copies, pickles (Ray), JSON (evaluations), and what is set."""
    read = section(reward)
    assert weights(read) == expected
    for again in (
        copy.deepcopy(read),
        pickle.loads(pickle.dumps(read)),
        section(read.model_dump(exclude_unset=True)),
        section(json.loads(read.model_dump_json())),
    ):
        assert weights(again) == expected
        assert again == read


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
