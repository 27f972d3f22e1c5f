from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.models import RewardModelConfig
from agent_rl.settings.serving import ServedModelSettings
from agent_rl.verl_adapter.served_addresses import Served, fill_in, require_known

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
        ({"reward": {"components": {"good": component({"nise": {}})}}}, "components.good.config.models.nise"),
        ({"reward": {"components": {"good": component({"nise": None})}}}, "components.good.config.models.nise"),
        ({"user_sim": {"config": {"url": "http://served/nise/v1"}}}, "user_sim.config.url"),
    ],
)
def test_an_unknown_name_is_refused(section: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'nice'") as caught:
        require_known(section, set(SERVED))
    assert caught.value.key.endswith(key)


def test_known_names_and_addresses_pass() -> None:
    section = {"good": component({"nice": {}, "mine": {"url": "http://elsewhere"}}), "url": "http://served/bt"}
    require_known(section, set(SERVED))
