"""What GDPO and the optimal-token baselines read; the queue is a dict here, a real one in `make test-recipes`."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transfer_queue
from omegaconf import OmegaConf
from verl import DataProto

from agent_rl.errors import ConfigError
from agent_rl.settings import RewardSettings
from agent_rl.verl_adapter.algorithms import inputs
from agent_rl.verl_adapter.algorithms.advantages import estimate

KEYS = ["a_0_0", "a_1_0", "a_1_1", "b_0_0", "b_1_0", "pad_0_0"]
BATCH = SimpleNamespace(keys=KEYS, tags=[{}] * 5 + [{"is_padding": True}], partition_id="train")
REPORTS = [{"exact": 1.0, "short": -10.0}, {"exact": 0.0, "short": -30.0}] * 2
"""The report of each of the four trajectories."""
WEIGHTS = {"exact": 1.0, "short": 0.5}


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> DataProto:
    rows = [{"reward_extra_info": report} for report in REPORTS]
    monkeypatch.setattr(transfer_queue, "kv_batch_get", lambda keys, **_: {"extra_fields": rows[: len(keys)]})
    mask = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
    tensors = {"token_level_rewards": torch.zeros(6, 3), "response_mask": mask}
    return DataProto.from_dict(tensors, {"uid": np.array(["a", "a", "a", "b", "b", "pad"], dtype=object)})


def test_gdpo_normalizes_each_component_and_counts_a_trajectory_once(data: DataProto) -> None:
    algorithm = inputs.add_components(data, BATCH, OmegaConf.create({}), WEIGHTS)
    advantages_BT = estimate(data, KEYS, "gdpo", config=algorithm).batch["advantages"]
    # Both components say the same of each pair, so all advantages have one size: that of the whitened batch.
    tokens = torch.tensor([1.0] * 2 + [-1.0] + [1.0] + [-1.0] * 3)  # of the last sequence of each trajectory
    size = (tokens - tokens.mean()) / tokens.std()
    expected = torch.stack([size[0], size[2], size[2], size[3], size[4], torch.tensor(0.0)]).unsqueeze(1)
    torch.testing.assert_close(advantages_BT, expected * data.batch["response_mask"], rtol=1e-4, atol=1e-4)


def test_keys_and_weights_of_the_user_replace_those_of_the_reward(data: DataProto) -> None:
    algorithm = OmegaConf.create({"gdpo_reward_keys": ["short"], "gdpo_reward_weights": [3.0], "gamma": 1.0})
    merged = inputs.add_components(data, BATCH, algorithm, WEIGHTS)
    assert (merged.gdpo_reward_keys, merged.gdpo_reward_weights, merged.gamma) == (["component/short"], [3.0], 1.0)
    with pytest.raises(ConfigError, match=r"algorithm\.gdpo_reward_keys: 'shot' is not logged.*'short'"):
        inputs.add_components(data, BATCH, OmegaConf.create({"gdpo_reward_keys": ["shot"]}), WEIGHTS)


def test_each_component_needs_a_weight(data: DataProto) -> None:
    algorithm = OmegaConf.create({"gdpo_reward_weights": [1.0]})
    with pytest.raises(ConfigError, match=r"there are 1 weights for 2 components \(exact, short\)"):
        inputs.add_components(data, BATCH, algorithm, WEIGHTS)


def test_components_count_if_they_have_a_weight() -> None:
    section = {"format": {"turns": 2}, "components": {"own": {"kind": "tool_rewards", "weight": 0}}}
    settings = RewardSettings.model_validate(section)
    assert inputs.component_weights({}, settings, 1) == {"correctness": 1.0, "format": 0.2}


def test_a_schedule_that_starts_at_0_does_not_count_as_no_weight(data: DataProto) -> None:
    ramp = {"start": 0.0, "end": 0.5, "from_step": 50, "to_step": 100}
    settings = RewardSettings.model_validate({"components": {"short": {"kind": "tool_rewards", "weight": ramp}}})
    algorithm = OmegaConf.create({"gdpo_reward_keys": ["exact", "short"]})
    for step, weight in ((1, 0.0), (75, 0.25), (100, 0.5)):
        own = inputs.component_weights(algorithm, settings, step)
        assert inputs.add_components(data, BATCH, algorithm, own).gdpo_reward_weights == [1.0, weight]


def test_a_component_named_like_a_metric_has_the_name_under_which_it_is_logged() -> None:
    settings = RewardSettings.model_validate({"components": {"turns": {"kind": "tool_rewards"}}})
    assert inputs.component_weights({}, settings, 1)["turns_reward"] == 1.0
    assert "turns" not in inputs.component_weights({}, settings, 1)


def test_all_data_sources_share_the_weights() -> None:
    world = {"correctness": {"weight": 0, "scorer": "none"}, "components": {"won": {"kind": "tool_rewards"}}}
    sources = {"per_data_source": {"world": world}}
    assert inputs.component_weights({}, RewardSettings.model_validate(sources), 1) == {"correctness": 1.0, "won": 1.0}
    lighter = RewardSettings.model_validate({"per_data_source": {"world": {"correctness": {"weight": 0.5}}}})
    with pytest.raises(
        ConfigError, match=r"world: the weight of 'correctness' is 0.5 here and 1.0 for other .* set the same"
    ):
        inputs.component_weights({}, lighter, 1)
    own = {"gdpo_reward_keys": ["correctness"], "gdpo_reward_weights": [1.0]}
    assert inputs.component_weights(own, lighter, 1) == {}


def test_squares_are_those_of_the_tokens_of_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(*rows: list[float]) -> Any:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    stored = {"sum_pi_squared": nested([0.1, 0.2, 0.3, 0.9], [0.4, 0.5, 0.9]), "response_mask": nested([1, 1], [1])}
    monkeypatch.setattr(transfer_queue, "kv_batch_get", lambda **_: stored)
    data = DataProto.from_dict({"response_mask": torch.tensor([[1, 1], [1, 0]])})
    inputs.add_squares(data, BATCH)
    torch.testing.assert_close(data.batch["sum_pi_squared"], torch.tensor([[0.2, 0.3], [0.5, 0.0]]))
