"""How several models are configured and placed; they are served for real in tests/e2e."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.settings.serving import ServedModelSettings
from agent_rl.verl_adapter.served_addresses import Served
from agent_rl.verl_adapter.served_models import rollout_config, write_addresses
from tests.forks import python

ROLLOUT = {
    "_target_": "verl.workers.config.RolloutConfig",
    "name": "???",
    "dtype": "float32",
    "free_cache_engine": True,
    "engine_kwargs": {"sglang": {"device": "cpu"}},
}


def base() -> Any:
    return OmegaConf.create({"reward": {"reward_model": {"rollout": ROLLOUT}}, "agent_rl": {"reward": {}}})


def test_a_models_engine_is_verls_with_its_own_settings() -> None:
    model = ServedModelSettings(
        path="rm",
        placement="shared",
        tensor_parallel_size=2,
        gpu_memory_utilization=0.3,
        max_model_len=4096,
        engine_kwargs={"attention_backend": "fa3"},
    )
    rollout = rollout_config(base(), model)
    assert rollout.engine_kwargs.sglang == {"device": "cpu", "is_embedding": True, "attention_backend": "fa3"}
    assert (rollout.name, rollout.dtype, rollout.max_model_len) == ("sglang", "float32", 4096)
    assert (rollout.tensor_model_parallel_size, rollout.gpu_memory_utilization) == (2, 0.3)
    assert rollout.free_cache_engine is True


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_model_that_writes_is_no_classifier_and_one_with_gpus_of_its_own_never_sleeps(engine: Any) -> None:
    rollout = rollout_config(base(), ServedModelSettings(path="rm", kind="generative", engine=engine))
    assert "is_embedding" not in rollout.engine_kwargs[engine]
    assert rollout.free_cache_engine is False


def test_addresses_reach_the_configuration() -> None:
    config = base()
    config.agent_rl.judge = {"url": "http://served/nice/v1"}
    OmegaConf.set_struct(config, True)
    write_addresses(config, {"nice": Served("http://10.0.0.1:80", ServedModelSettings(path="rm"))})
    assert config.agent_rl.judge.url == "http://10.0.0.1:80/v1"


POOLS = """
import verl, hydra
from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
with hydra.initialize_config_module('verl.trainer.config', version_base=None):
    config = hydra.compose('ppo_trainer')
with open_dict(config):
    config.agent_rl = {'reward': {'models': {name: {'path': 'rm', 'placement': 'shared'} for name in 'abc'}}}
class Trainer(PPOTrainer):
    def __init__(self): self.config, self.role_worker_mapping, self.mapping = config, {}, {}
Trainer.__abstractmethods__ = frozenset()
trainer = Trainer()
trainer._init_resource_pool_mgr()
print(trainer.resource_pool_manager.max_colocate_count)
"""


def test_a_gpu_has_room_for_the_trainer_and_each_model_that_shares_it() -> None:
    assert int(python(POOLS)) >= 4


def test_that_is_needed() -> None:
    assert python(POOLS, plugins="none") == "3"
