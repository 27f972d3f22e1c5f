"""The manager `trajectory` beside a reward model; the tests with "would" call verl's own classes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch
from omegaconf import OmegaConf
from ray import cloudpickle
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import reward_loop
from verl.experimental.reward_loop.reward_model import RewardModelManager

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import groups
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter.reward_loop import (
    AgentRewardLoopManager,
    AgentRewardLoopWorker,
    _add_component,
    _portable,
)

ERRORS = {"odd": KeyError("odd"), "lost": UnscoredError("lost it"), "wrong": ConfigError("a.key", "is wrong", "Fix it")}


async def run_single(data: Any) -> dict[str, Any]:
    if error := ERRORS.get(str(data.non_tensor_batch["uid"][0])):
        raise error
    group = groups.current()
    return {"reward_score": group.number if group else 0}


async def by_the_model(data: Any) -> str:
    return "by the model alone"


def worker(kind: type[Any], manager: str = "trajectory") -> Any:
    """A worker beside a reward model."""
    made = object.__new__(kind)
    reward = {"reward_manager": {"name": manager}, "reward_model": {"enable": True}}
    made.config = OmegaConf.create({"reward": {**reward, "custom_reward_function": {"path": None}}})
    made.reward_manager, made.compute_score_disrm = SimpleNamespace(run_single=run_single), by_the_model
    return made


def data(*uids: str) -> Any:
    batch = TensorDict({"responses": torch.zeros(len(uids), 1)}, batch_size=len(uids))
    return DataProto(batch=batch, non_tensor_batch={"uid": np.array(uids, dtype=object)})


def test_our_manager_is_asked_also_where_there_is_a_model() -> None:
    assert asyncio.run(worker(AgentRewardLoopWorker).compute_score(data("fine"))) == {"reward_score": 0}
    assert asyncio.run(worker(AgentRewardLoopWorker, "naive").compute_score(data("fine"))) == "by the model alone"


def test_verl_would_score_by_the_model_alone() -> None:
    assert asyncio.run(worker(reward_loop.RewardLoopWorker).compute_score(data("fine"))) == "by the model alone"


def scored(uids: str, of_prompt: Any) -> list[object]:
    results = of_prompt(data(*uids.split()))
    return [each if isinstance(each, dict) else f"{type(each).__name__}: {each}" for each in results]


EXPECTED = [
    {"reward_score": 2},
    "UnscoredError: KeyError: 'odd'",
    {"reward_score": 1},
    "UnscoredError: lost it",
    {"reward_score": 2},
    "ConfigError: a.key: is wrong. Fix it",
]


def test_one_failure_is_one_trajectorys_and_the_samples_of_a_prompt_are_a_group() -> None:
    own = worker(AgentRewardLoopWorker)
    assert scored("a odd b lost a wrong", lambda batch: asyncio.run(own.score_each(batch))) == EXPECTED


@pytest.mark.parametrize("workers", [0, 2])
def test_the_manager_scores_whole_prompts_by_its_workers_or_itself(workers: int) -> None:
    manager = object.__new__(AgentRewardLoopManager)
    remote = SimpleNamespace(score_each=SimpleNamespace(remote=worker(AgentRewardLoopWorker).score_each))
    manager.reward_loop_workers = [remote] * workers
    manager._own_worker = worker(AgentRewardLoopWorker)
    assert scored("a odd b lost a wrong", manager.score_each) == EXPECTED


def handles(kind: type[Any], placement: str) -> Any:
    manager = object.__new__(kind)
    manager.reward_loop_workers = ["a worker"]
    models = {"a": {"path": "rm", "placement": placement}}
    reward = {"reward_model": {"enable": False}}
    manager.config = OmegaConf.create({"reward": reward, "agent_rl": {"reward": {"models": models}}})
    return manager.reward_loop_worker_handles


def test_nobody_scores_while_a_shared_model_sleeps() -> None:
    assert handles(AgentRewardLoopManager, "shared") is None
    assert handles(AgentRewardLoopManager, "own") == ["a worker"]


def test_verl_would_score_while_a_shared_model_sleeps() -> None:
    assert handles(reward_loop.RewardLoopManager, "shared") == ["a worker"]


class Model(RewardModelManager):
    """verl's, without servers; notes what it is told."""

    def __init__(self, *args: Any) -> None:
        self.calls: list[str] = []
        super().__init__(*args)

    def _initialize_llm_servers(self) -> None: ...

    def _initialize_router(self) -> None:
        self.router_address = None

    def wake_up(self) -> None:
        self.calls.append("wake_up")

    def sleep(self) -> None:
        self.calls.append("sleep")


@pytest.fixture
def calls(compose, monkeypatch):  # type: ignore[no-untyped-def]
    """What a manager tells verl's reward model when it is constructed."""
    monkeypatch.setattr(reward_loop, "RewardModelManager", Model)
    monkeypatch.setattr(ray, "nodes", list)

    def construct(kind: type[Any], **model: Any) -> list[str]:
        config = compose("reward.reward_model.rollout.name=sglang", "reward.num_workers=0")
        config.reward.reward_model.enable = True
        config.reward.reward_model.enable_resource_pool = model.get("pool", True)
        config.reward.reward_model.rollout.free_cache_engine = model.get("frees", True)
        calls: list[str] = kind(config).reward_model_manager.calls
        return calls

    return construct


@pytest.mark.parametrize(
    ("pool", "frees", "expected"),
    [(True, True, ["sleep", "wake_up"]), (False, True, ["sleep"]), (True, False, [])],
)
def test_verls_model_is_awake_on_gpus_of_its_own(calls: Any, pool: bool, frees: bool, expected: list[str]) -> None:
    assert calls(AgentRewardLoopManager, pool=pool, frees=frees) == expected


def test_verl_would_never_wake_the_model(calls: Any) -> None:
    assert calls(reward_loop.RewardLoopManager) == ["sleep"]


def config(components: dict[str, Any] | None = None) -> Any:
    section = {} if components is None else {"agent_rl": {"reward": {"components": components}}}
    model = {"model_path": "m/rm", "rollout": {"name": "sglang"}}
    return OmegaConf.create({"reward": {"reward_model": model}, **section})


def test_verls_model_becomes_a_component() -> None:
    whole = config()
    _add_component(whole, "10.0.0.1:80")
    component = AgentRLSettings.from_config(whole).reward.components["reward_model"]
    assert component.weight == 1.0
    model = component.config["models"]["reward_model"]
    assert {key: model[key] for key in ("url", "tokenizer", "engine", "kind")} == {
        "url": "http://10.0.0.1:80",
        "tokenizer": "m/rm",
        "engine": "sglang",
        "kind": "discriminative",
    }


def test_a_component_that_asks_verls_model_is_the_only_one() -> None:
    own = {"kind": "reward_model", "weight": 0.5, "config": {"models": {"reward_model": {"shown": "answer"}}}}
    whole = config({"good": own})
    _add_component(whole, "10.0.0.1:80")
    components = AgentRLSettings.from_config(whole).reward.components
    assert list(components) == ["good"]
    model = components["good"].config["models"]["reward_model"]
    assert (model["url"], model["shown"]) == ("http://10.0.0.1:80", "answer")


def test_the_workers_class_crosses_processes() -> None:
    """Ray sends a class of its own, which names ours."""
    sent = cloudpickle.dumps(ray.remote(AgentRewardLoopWorker).__ray_metadata__.modified_class)
    assert AgentRewardLoopWorker in cloudpickle.loads(sent).__mro__


def test_errors_cross_processes() -> None:
    wrong = ConfigError("k", "p", "r")
    assert _portable(wrong) is wrong
    assert str(_portable(ValueError("x"))) == "ValueError: x"
    with pytest.raises(UnscoredError, match=r"^gone$"):
        raise _portable(UnscoredError("gone"))
