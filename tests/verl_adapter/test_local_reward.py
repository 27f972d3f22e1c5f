"""A worker without reward workers scores by itself; the whole way runs in tests/e2e, whose CPU profile says so."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import local_reward
from tests.forks import python

WORKER = """
import asyncio, verl
from types import SimpleNamespace
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.reward_loop import reward_loop

class Scorer(reward_loop.RewardLoopWorker):
    def __init__(self, config):
        self.config = config
    async def compute_score(self, data):
        return {"reward_score": data + self.config}

reward_loop.RewardLoopWorker = Scorer

def verls(self, config, llm_client, teacher_client=None, reward_loop_worker_handles=None):
    self.config, self.reward_loop_worker_handles = config, reward_loop_worker_handles

import verl.experimental.agent_loop.agent_loop as module
def handles(given):
    module.AgentLoopWorker.__init__ = verls
    from agent_rl.verl_adapter import local_reward
    local_reward.score_here(module)
    return AgentLoopWorker(1, None, None, given).reward_loop_worker_handles

async def score(handle):
    return await handle.compute_score.remote(2)
"""


def config(*, workers: int, model: bool, manager: str = "naive", path: str | None = None) -> Any:
    return OmegaConf.create(
        {
            "num_workers": workers,
            "reward_model": {"enable": model},
            "reward_manager": {"name": manager},
            "custom_reward_function": {"path": path},
        }
    )


def test_a_worker_without_reward_workers_scores_here() -> None:
    assert python(WORKER + "print(asyncio.run(score(handles([])[0])))") == "{'reward_score': 3}"


def test_reward_workers_and_a_model_that_scores_later_are_left_alone() -> None:
    assert python(WORKER + "print(handles(['a worker']), handles(None))") == "['a worker'] None"


def test_it_is_needed() -> None:
    code = (
        "import inspect, verl\nfrom verl.experimental.agent_loop.agent_loop import AgentLoopWorker\n"
        "print('random.choice(self.reward_loop_worker_handles)' in inspect.getsource(AgentLoopWorker._compute_score))"
    )
    assert python(code, plugins="none") == "True"


def test_a_reward_model_needs_reward_workers() -> None:
    found = config(workers=0, model=True, manager="trajectory")  # a component asks it
    for fine in (config(workers=0, model=False), config(workers=1, model=True), found):
        local_reward.check(fine, needs_groups=False)
    for manager, path in (("naive", None), ("trajectory", "judge.py")):
        with pytest.raises(ConfigError, match=r"reward\.num_workers: 0 leaves nobody to ask the reward model"):
            local_reward.check(config(workers=0, model=True, manager=manager, path=path), needs_groups=False)
