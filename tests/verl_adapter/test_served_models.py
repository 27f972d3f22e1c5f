"""How several models are configured and placed; they are served for real in tests/e2e."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.rewards.models import RewardModelConfig
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.verl_adapter.served_models import references, rollout_config, write_addresses
from tests.support.forks import python

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


@pytest.mark.parametrize(
    ("kind", "engine", "embeds"),
    [("discriminative", "sglang", True), ("generative", "sglang", None), ("generative", "vllm", None)],
)
def test_a_model_that_writes_is_no_classifier_and_one_with_gpus_of_its_own_never_sleeps(
    kind: Any, engine: Any, embeds: bool | None
) -> None:
    rollout = rollout_config(base(), ServedModelSettings(path="rm", kind=kind, engine=engine))
    assert rollout.engine_kwargs[engine].get("is_embedding") is embeds
    assert rollout.free_cache_engine is False


POOLS = """
import verl
from tests.verl_adapter.trainers import make
models = {name: {"path": "rm", "placement": "shared"} for name in "abc"}
trainer = make(config={"agent_rl.reward.models": models})
trainer._init_resource_pool_mgr()
print(trainer.resource_pool_manager.max_colocate_count)
"""


def test_a_gpu_has_room_for_the_trainer_and_each_model_that_shares_it_and_for_three_with_verl() -> None:
    assert int(python(POOLS)) >= 4
    assert python(POOLS, plugins="none") == "3"


SERVED = {
    "nice": (
        "http://10.0.0.1:80",
        ServedModelSettings(path="m/nice", kind="generative", engine="vllm", temperature=0.5),
    ),
    "bt": ("http://10.0.0.2:81", ServedModelSettings(path="m/bt")),
}


def component(models: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "reward_model", "weight": 0.5, "config": {"combine": "add", "models": models}}


def filled(section: dict[str, Any]) -> Any:
    """The section with addresses, as the workers get it."""
    config = OmegaConf.create({"agent_rl": section})
    OmegaConf.set_struct(config, True)
    write_addresses(config, SERVED)
    return OmegaConf.to_container(config.agent_rl)


def test_a_component_gets_what_the_server_has() -> None:
    mine = {"url": "http://elsewhere", "kind": "generative"}
    good = component({"nice": {"temperature": 1.0}, "bt": None, "mine": mine})
    reward = filled({"reward": {"components": {"good": good}, "per_data_source": {"a*": {"components": {"x": good}}}}})
    found = reward["reward"]["components"]["good"]
    assert found == reward["reward"]["per_data_source"]["a*"]["components"]["x"]
    assert found["weight"] == 0.5
    models = RewardModelConfig.model_validate(found["config"]).models
    nice, bt = models["nice"], models["bt"]
    assert (nice.url, nice.kind, nice.engine, nice.temperature) == ("http://10.0.0.1:80", "generative", "vllm", 1.0)
    assert (bt.url, bt.model, bt.tokenizer, bt.kind) == ("http://10.0.0.2:81", "m/bt", "m/bt", "discriminative")
    assert found["config"]["models"]["mine"] == mine


def test_any_url_may_name_a_served_model() -> None:
    section = {"judge": {"url": "http://served/nice/v1"}, "list": ["http://served/bt"], "not": "see http://served/bt"}
    assert filled(section) == {
        "judge": {"url": "http://10.0.0.1:80/v1"},
        "list": ["http://10.0.0.2:81"],
        "not": "see http://served/bt",
    }


def test_references_are_found_with_their_keys_and_addresses_are_none() -> None:
    models = {"nise": {}, "nose": None, "mine": {"url": "http://elsewhere"}}
    section = {"reward": {"components": {"good": component(models)}}, "user_sim": {"url": "http://served/bt/v1"}}
    models_key = "agent_rl.reward.components.good.config.models"
    expected = [(f"{models_key}.nise", "nise"), (f"{models_key}.nose", "nose"), ("agent_rl.user_sim.url", "bt")]
    assert [(key, name) for key, name, *_ in references(section)] == expected
