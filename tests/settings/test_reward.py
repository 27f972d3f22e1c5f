from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings


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
        ({"nice": {"path": "rm", "gpu_memory_utilization": 1.5}}, "gpu_memory_utilization"),
        ({"not nice": {"path": "rm"}}, "not nice"),
    ],
)
def test_an_invalid_served_model_is_refused(models: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(models)
