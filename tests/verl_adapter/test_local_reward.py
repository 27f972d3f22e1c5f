"""What a worker hands over and scores by itself; the whole way runs in tests/e2e, whose CPU profile says so."""

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


HANDED_OVER = """
import asyncio, verl
from types import SimpleNamespace
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, AgentLoopWorker
from agent_rl.trajectory import StopReason, Trajectory

ROW = {"raw_prompt": [{"role": "user", "content": "6*7?"}], "uid": "u", "session_id": 1, "global_steps": 25,
    "data_source": "gsm8k", "extra_info": {"index": 7}, "reward_model": {"ground_truth": "42"}}

class Worker(AgentLoopWorker):
    def __init__(self, manager):
        self.config = OmegaConf.create({"reward": {"reward_manager": {"name": manager}}})
        self.processor, self.mm_processor_kwargs = None, {}
        self.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)))
        self.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=self.score))]
    async def score(self, data):
        self.given = data.non_tensor_batch["tool_extra_fields"][-1].get("trajectory")
        return {"reward_score": 1.0, "reward_extra_info": {}}

def run(manager, **fields):
    worker, numbers = Worker(manager), {"prompt_ids": [1, 2], "response_ids": [52, 50], "response_mask": [1, 1]}
    output = AgentLoopOutput(**numbers, metrics=AgentLoopMetrics(), num_turns=2)
    output.extra_fields = {"tool_rewards": [], **fields}
    asyncio.run(worker._compute_score([output], kwargs=ROW))
    return worker.given, sorted(output.extra_fields)
"""
TRAINERS = ["reward_extra_info", "tool_rewards"]
"""What the trainer still gets of a scored trajectory: it fetches these fields at each step."""


def test_our_manager_gets_the_trajectory_itself_and_the_trainer_does_not() -> None:
    code = "t = Trajectory([], StopReason.ANSWERED)\ngiven, kept = run('trajectory', trajectory=t)\n"
    code += "print(given is t, kept)"
    assert python(HANDED_OVER + code) == f"True {TRAINERS}"


def test_the_worker_makes_the_trajectory_of_verls_own_loops_with_its_row_and_step() -> None:
    code = (
        "t, kept = run('trajectory')\nprint(t.turns[0].text, t.turns[0].tokens, t.prompt_tokens, t.answer, t.agent,"
        " t.id, t.info, t.row['extra_info'], t.ground_truth, t.prompt[0].content, kept, sep='|')"
    )
    info = {"step": 25, "split": None, "index": 7}
    assert python(HANDED_OVER + code) == f"42|2|2|42||u_1|{info}|{{'index': 7}}|42|6*7?|{TRAINERS}"


def test_other_managers_get_plain_data_and_no_trajectory_of_verls_own_loops() -> None:
    code = (
        "given, _ = run('naive', trajectory=Trajectory([], StopReason.ANSWERED))\nprint(given['version'], run('naive'))"
    )
    assert python(HANDED_OVER + code) == f"1 (None, {TRAINERS})"


def test_verls_own_loops_hand_over_no_trajectory() -> None:
    assert python(HANDED_OVER + "print(run('trajectory')[0])", plugins="none") == "None"
