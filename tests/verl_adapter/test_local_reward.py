"""A worker without reward workers scores by itself; the whole way runs in tests/e2e, whose CPU profile says so."""

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


def test_a_worker_without_reward_workers_scores_here() -> None:
    assert python(WORKER + "print(asyncio.run(score(handles([])[0])))") == "{'reward_score': 3}"


def test_reward_workers_and_a_model_that_scores_later_are_left_alone() -> None:
    assert python(WORKER + "print(handles(['a worker']), handles(None))") == "['a worker'] None"


def test_verl_would_choose_a_reward_worker_at_random() -> None:
    code = (
        "import inspect, verl\nfrom verl.experimental.agent_loop.agent_loop import AgentLoopWorker\n"
        "print('random.choice(self.reward_loop_worker_handles)' in inspect.getsource(AgentLoopWorker._compute_score))"
    )
    assert python(code, plugins="none") == "True"
