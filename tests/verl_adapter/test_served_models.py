"""How several models are configured and placed; they are served for real in tests/e2e."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.rewards.models import RewardModelConfig
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.verl_adapter.served_models import Served, fill_in, named, rollout_config, write_addresses
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


def test_an_embedding_model_is_served_as_one() -> None:
    rollout = rollout_config(base(), ServedModelSettings(path="bge", kind="embedding"))
    assert rollout.engine_kwargs.sglang.is_embedding is True


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
import verl
from tests.verl_adapter.trainers import make
models = {name: {"path": "rm", "placement": "shared"} for name in "abc"}
trainer = make(config={"agent_rl.reward.models": models})
trainer._init_resource_pool_mgr()
print(trainer.resource_pool_manager.max_colocate_count)
"""


def test_a_gpu_has_room_for_the_trainer_and_each_model_that_shares_it() -> None:
    assert int(python(POOLS)) >= 4


def test_verl_would_give_a_gpu_room_for_three() -> None:
    assert python(POOLS, plugins="none") == "3"


SERVED = {
    "nice": Served(
        "http://10.0.0.1:80", ServedModelSettings(path="m/nice", kind="generative", engine="vllm", temperature=0.5)
    ),
    "bt": Served("http://10.0.0.2:81", ServedModelSettings(path="m/bt")),
}


def component(models: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "reward_model", "weight": 0.5, "config": {"combine": "add", "models": models}}


def test_a_component_gets_what_the_server_has() -> None:
    mine = {"url": "http://elsewhere", "kind": "generative"}
    section = {"reward": {"components": {"good": component({"nice": {"temperature": 1.0}, "bt": None, "mine": mine})}}}
    filled = fill_in(section, SERVED)
    found = filled["reward"]["components"]["good"]
    assert found["weight"] == 0.5
    models = RewardModelConfig.model_validate(found["config"]).models
    nice, bt = models["nice"], models["bt"]
    assert (nice.url, nice.kind, nice.engine, nice.temperature) == ("http://10.0.0.1:80", "generative", "vllm", 1.0)
    assert (bt.url, bt.model, bt.tokenizer, bt.kind) == ("http://10.0.0.2:81", "m/bt", "m/bt", "discriminative")
    assert found["config"]["models"]["mine"] == mine
    assert section["reward"]["components"]["good"]["config"]["models"]["bt"] is None  # a copy


def test_components_of_data_sources_too() -> None:
    section = {"reward": {"per_data_source": {"a*": {"components": {"good": component({"bt": {}})}}}}}
    filled = fill_in(section, SERVED)
    found = filled["reward"]["per_data_source"]["a*"]["components"]["good"]["config"]["models"]["bt"]
    assert found["url"] == "http://10.0.0.2:81"


def test_any_url_may_name_a_served_model() -> None:
    section = {"judge": {"url": "http://served/nice/v1"}, "list": ["http://served/bt"], "not": "see http://served/bt"}
    assert fill_in(section, SERVED) == {
        "judge": {"url": "http://10.0.0.1:80/v1"},
        "list": ["http://10.0.0.2:81"],
        "not": "see http://served/bt",
    }


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"reward": {"components": {"good": component({"nise": {}})}}}, "reward.components.good.config.models.nise"),
        ({"reward": {"components": {"good": component({"nise": None})}}}, "reward.components.good.config.models.nise"),
        ({"user_sim": {"config": {"url": "http://served/nise/v1"}}}, "user_sim.config.url"),
    ],
)
def test_references_are_found_with_their_keys(section: dict[str, Any], key: str) -> None:
    ((place, name),) = named(section)
    assert (place, name) == (f"agent_rl.{key}", "nise")


def test_addresses_are_not_references() -> None:
    section = {"good": component({"nice": {}, "mine": {"url": "http://elsewhere"}}), "url": "http://served/bt"}
    assert [name for _, name in named(section)] == ["nice", "bt"]
