"""The manager `trajectory` beside a reward model; the tests with "would" call verl's own classes.

The whole way of a late score, with a real engine and TransferQueue, runs in tests/e2e.
"""

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
)
from tests.support.forks import python

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
    def answer(kind: type[Any], manager: str) -> object:
        return asyncio.run(worker(kind, manager).compute_score(data("fine")))

    assert answer(AgentRewardLoopWorker, "trajectory") == {"reward_score": 0}
    assert answer(AgentRewardLoopWorker, "naive") == "by the model alone"
    assert answer(reward_loop.RewardLoopWorker, "trajectory") == "by the model alone"  # verl's


EXPECTED = [
    {"reward_score": 2},
    "UnscoredError: KeyError: 'odd'",
    {"reward_score": 1},
    "UnscoredError: lost it",
    {"reward_score": 2},
    "ConfigError: a.key: is wrong. Fix it",
]


@pytest.mark.parametrize("workers", [0, 2])
def test_one_failure_is_one_trajectorys_and_the_samples_of_a_prompt_are_a_group(workers: int) -> None:
    """Scored by reward workers, or by the manager itself."""
    manager = object.__new__(AgentRewardLoopManager)
    remote = SimpleNamespace(score_each=SimpleNamespace(remote=worker(AgentRewardLoopWorker).score_each))
    manager.reward_loop_workers = [remote] * workers
    manager._own_worker = worker(AgentRewardLoopWorker)
    results = manager.score_each(data("a", "odd", "b", "lost", "a", "wrong"))
    assert [each if isinstance(each, dict) else f"{type(each).__name__}: {each}" for each in results] == EXPECTED


def handles(kind: type[Any], placement: str) -> Any:
    manager = object.__new__(kind)
    manager.reward_loop_workers = ["a worker"]
    models = {"a": {"path": "rm", "placement": placement}}
    reward = {"reward_model": {"enable": False}}
    manager.config = OmegaConf.create({"reward": reward, "agent_rl": {"reward": {"models": models}}})
    return manager.reward_loop_worker_handles


def test_a_shared_model_sleeps_while_trajectories_are_sampled() -> None:
    assert handles(AgentRewardLoopManager, "shared") is None
    assert handles(AgentRewardLoopManager, "own") == ["a worker"]
    assert handles(reward_loop.RewardLoopManager, "shared") == ["a worker"]  # verl would score then


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


@pytest.mark.parametrize(
    ("kind", "pool", "frees", "calls"),
    [
        (AgentRewardLoopManager, True, True, ["sleep", "wake_up"]),
        (AgentRewardLoopManager, False, True, ["sleep"]),
        (AgentRewardLoopManager, True, False, []),
        (reward_loop.RewardLoopManager, True, True, ["sleep"]),  # verl would never wake it
    ],
)
def test_verls_model_is_awake_on_gpus_of_its_own(
    compose: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, pool: bool, frees: bool, calls: list[str]
) -> None:
    monkeypatch.setattr(reward_loop, "RewardModelManager", Model)
    monkeypatch.setattr(ray, "nodes", list)
    config = compose("reward.reward_model.rollout.name=sglang", "reward.num_workers=0")
    config.reward.reward_model.enable = True
    config.reward.reward_model.enable_resource_pool = pool
    config.reward.reward_model.rollout.free_cache_engine = frees
    assert kind(config).reward_model_manager.calls == calls


@pytest.mark.parametrize("own", [False, True])
def test_verls_model_is_a_component_or_that_of_one(own: bool) -> None:
    good = {"kind": "reward_model", "weight": 0.5, "config": {"models": {"reward_model": {"shown": "answer"}}}}
    model = {"model_path": "m/rm", "rollout": {"name": "sglang"}}
    section = {"agent_rl": {"reward": {"components": {"good": good}}}} if own else {}
    whole = OmegaConf.create({"reward": {"reward_model": model}, **section})
    _add_component(whole, "10.0.0.1:80")
    ((name, component),) = AgentRLSettings.from_config(whole).reward.components.items()
    assert (name, component.weight) == (("good", 0.5) if own else ("reward_model", 1.0))
    filled = {"url": "http://10.0.0.1:80", "tokenizer": "m/rm", "engine": "sglang", "kind": "discriminative"}
    assert component.config["models"]["reward_model"].items() >= (filled | ({"shown": "answer"} if own else {})).items()


def test_the_workers_class_crosses_processes() -> None:
    """Ray sends a class of its own, which names ours."""
    sent = cloudpickle.dumps(ray.remote(AgentRewardLoopWorker).__ray_metadata__.modified_class)
    assert AgentRewardLoopWorker in cloudpickle.loads(sent).__mro__


SAMPLED = """
from types import SimpleNamespace
from tests.verl_adapter import sessions
sessions.Scripted.scores = False
made = sessions.trainer("colocate_async", "algorithm.adv_estimator=grpo", "reward.reward_manager.name=trajectory")
sessions.submit(made, 3)
batch, _ = made.replay_buffer.sample(1, "train", 2)
manager, seen = made.reward_loop_manager, {}

def score(data):
    seen.update(data.non_tensor_batch)
    return [answer] * len(data)

manager.score_each = manager.compute_rm_score = score
"""

WRITTEN = """
answer = {"reward_score": 0.5, "reward_extra_info": {}}
rows = [sessions.QUEUE.fields["train", key] for key in batch.keys]
for row in rows:
    row["response_mask"] = row["response_mask"].clone()
    row["response_mask"][-1] = 0
made._compute_reward_colocate(batch)
print({(float(row["rm_scores"][-2]), float(row["rm_scores"].sum())) for row in rows})
"""


def test_a_late_reward_stands_on_the_last_token_that_is_trained_on() -> None:
    assert python(SAMPLED + WRITTEN) == "{(0.5, 0.5)}"


HANDED = """
answer = {"reward_score": 0.5, "reward_extra_info": {}}
try:
    made._compute_reward_colocate(batch)
except AttributeError:  # verl expects a batch of scores
    pass
columns = seen.keys() & {"raw_prompt", "uid", "tool_extra_fields", "reward_model", "extra_info"}
"""
TRAJECTORY = "of = seen['tool_extra_fields'][0]['trajectory']\nprint(sorted(columns), of.ground_truth, of.info['step'])"


def test_the_manager_gets_the_trajectory_where_verl_would_hand_over_no_ground_truth() -> None:
    assert python(SAMPLED + HANDED + TRAJECTORY) == "['tool_extra_fields', 'uid'] 42 1"
    assert python(SAMPLED + HANDED + "print(sorted(columns))", plugins="none") == "['raw_prompt']"
