import copy
import json
import pickle
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings, RewardSettings


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
