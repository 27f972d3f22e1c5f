"""Scoring after sampling; the whole way, with a real engine and TransferQueue, runs in tests/e2e."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter import late_scoring
from tests.forks import python

WORKER = """
import asyncio, verl
import numpy as np, torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import reward_loop
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import groups

class Manager:
    async def run_single(self, data):
        uid = str(data.non_tensor_batch["uid"][0])
        if uid == "odd": raise KeyError(uid)
        if uid == "lost": raise UnscoredError("lost it")
        if uid == "wrong": raise ConfigError("a.key", "is wrong", "Fix it")
        group = groups.current()
        return {"reward_score": len(group.tasks) if group else 0}

class Worker(reward_loop.RewardLoopWorker):
    def __init__(self, name):
        model = {"enable": True}
        self.config = OmegaConf.create({"reward": {
            "reward_manager": {"name": name}, "reward_model": model, "custom_reward_function": {"path": None}}})
        self.reward_manager = Manager()
    async def compute_score_disrm(self, data):
        return "by the model alone"

def data(*uids):
    batch = TensorDict({"responses": torch.zeros(len(uids), 1)}, batch_size=len(uids))
    return DataProto(batch=batch, non_tensor_batch={"uid": np.array(uids, dtype=object)})
"""

ALONE = "print(asyncio.run(Worker({name!r}).compute_score(data('fine'))))"


def test_our_manager_is_asked_also_where_there_is_a_model() -> None:
    assert python(WORKER + ALONE.format(name="trajectory")) == "{'reward_score': 0}"
    assert python(WORKER + ALONE.format(name="naive")) == "by the model alone"


def test_verl_would_score_by_the_model_alone() -> None:
    assert python(WORKER + ALONE.format(name="trajectory"), plugins="none") == "by the model alone"


def test_one_failure_is_one_trajectorys_and_the_samples_of_a_prompt_are_a_group() -> None:
    code = WORKER + (
        "found = asyncio.run(Worker('trajectory').score_each(data('a', 'odd', 'b', 'lost', 'a', 'wrong')))\n"
        "print([each if isinstance(each, dict) else f'{type(each).__name__}: {each}' for each in found])"
    )
    assert python(code) == str(
        [
            {"reward_score": 2},
            "UnscoredError: KeyError: 'odd'",
            {"reward_score": 1},
            "UnscoredError: lost it",
            {"reward_score": 2},
            "ConfigError: a.key: is wrong. Fix it",
        ]
    )


HANDLES = """
import verl
from omegaconf import OmegaConf
from verl.experimental.reward_loop import RewardLoopManager
manager = RewardLoopManager.__new__(RewardLoopManager)
manager.reward_loop_workers = ["a worker"]
def handles(placement):
    models = {"a": {"path": "rm", "placement": placement}}
    manager.config = OmegaConf.create(
        {"reward": {"reward_model": {"enable": False}}, "agent_rl": {"reward": {"models": models}}})
    return manager.reward_loop_worker_handles
print(handles("shared"), handles("own"))
"""


def test_nobody_scores_while_a_shared_model_sleeps() -> None:
    assert python(HANDLES) == "None ['a worker']"


def test_verl_would_score_while_a_shared_model_sleeps() -> None:
    assert python(HANDLES, plugins="none") == "['a worker'] ['a worker']"


@pytest.mark.parametrize(("pool", "frees", "woken"), [(True, True, 1), (False, True, 0), (True, False, 0)])
def test_verls_model_is_awake_on_gpus_of_its_own(pool: bool, frees: bool, woken: int) -> None:
    class Manager:
        config = OmegaConf.create(
            {
                "reward": {
                    "reward_model": {
                        "enable": True,
                        "enable_resource_pool": pool,
                        "rollout": {"free_cache_engine": frees},
                    }
                }
            }
        )
        calls: ClassVar[list[str]] = []
        reward_model_manager = SimpleNamespace(wake_up=lambda: Manager.calls.append("wake_up"))

        def _init_reward_loop_workers(self) -> None:
            self.calls.append("workers")

    module: Any = SimpleNamespace(RewardLoopManager=Manager)
    late_scoring.awake_in_its_own_pool(module)
    Manager()._init_reward_loop_workers()
    assert Manager.calls == ["wake_up"] * woken + ["workers"]


def test_verl_would_never_wake_the_model() -> None:
    code = (
        "import inspect, verl\nfrom verl.experimental.reward_loop import reward_loop, reward_model\n"
        "started = inspect.getsource(reward_model.RewardModelManager.__init__)\n"
        "woken = inspect.getsource(reward_loop.RewardLoopManager.__init__)\n"
        "print('self.sleep()' in started, 'wake_up' in started + woken)"
    )
    assert python(code, plugins="none") == "True False"


def test_what_verl_hands_on_after_sampling_is_still_too_little() -> None:
    code = (
        "import inspect, verl\nfrom verl.trainer.ppo.v1.trainer_base import PPOTrainer\n"
        "source = inspect.getsource(PPOTrainer._compute_reward_colocate)\n"
        'print(\'"prompts", "responses", "raw_prompt"]\' in source, \'ground_truth\' in source)'
    )
    assert python(code, plugins="none") == "True False"


def config(components: dict[str, Any] | None = None) -> Any:
    section = {} if components is None else {"agent_rl": {"reward": {"components": components}}}
    model = {"model_path": "m/rm", "rollout": {"name": "sglang"}}
    return OmegaConf.create({"reward": {"reward_model": model}, **section})


def test_verls_model_becomes_a_component() -> None:
    whole = config()
    late_scoring._add_component(whole, "10.0.0.1:80")
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
    late_scoring._add_component(whole, "10.0.0.1:80")
    components = AgentRLSettings.from_config(whole).reward.components
    assert list(components) == ["good"]
    model = components["good"].config["models"]["reward_model"]
    assert (model["url"], model["shown"]) == ("http://10.0.0.1:80", "answer")


def test_the_workers_methods_cross_processes() -> None:
    """Ray hands them over by value, with the objects that they name."""
    code = "import verl\nfrom ray import cloudpickle\nfrom verl.experimental.reward_loop import reward_loop\n"
    code += "for name in ('compute_score', 'score_each'):\n"
    code += "    cloudpickle.loads(cloudpickle.dumps(getattr(reward_loop.RewardLoopWorker, name)))\n    print(name)"
    assert python(code) == "score_each"


def test_errors_cross_processes() -> None:
    wrong = ConfigError("k", "p", "r")
    assert late_scoring._portable(wrong) is wrong
    assert str(late_scoring._portable(ValueError("x"))) == "ValueError: x"
    with pytest.raises(UnscoredError, match=r"^gone$"):
        raise late_scoring._portable(UnscoredError("gone"))
