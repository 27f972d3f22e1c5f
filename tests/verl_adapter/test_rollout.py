"""Our agent loop worker: what a failed session reports, and scoring without reward workers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import transfer_queue
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    _agent_loop_registry,
)
from verl.trainer.ppo.v1 import agent_loop_tq

from agent_rl.trajectory import StopReason, Trajectory
from agent_rl.verl_adapter import rollout
from agent_rl.verl_adapter.reward_loop import AgentRewardLoopWorker

ROW = {"raw_prompt": [{"role": "user", "content": "6*7?"}], "uid": "u"}


class Worker(rollout.AgentLoopWorker):
    """Keeps what a loop returns."""

    output: Any = None

    def __init__(self) -> None:
        sizes = {"rollout": {"n": 1, "val_kwargs": {"n": 1}}, "model": {"path": "m"}}
        self.config = OmegaConf.create({"actor_rollout_ref": sizes, "data": {}, "algorithm": {"adv_estimator": "grpo"}})
        self.llm_client = self.processor = self.hf_model_type = self.dataset_cls = self.tools = None
        self.tokenizer, self._unended, self._ended_early = SimpleNamespace(), set(), set()

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        self.output = output


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tags that are written."""
    tags: dict[str, Any] = {}

    async def put(key: str, partition_id: str, tag: Any) -> None:
        tags[f"{partition_id} {key}"] = tag

    for module in (agent_loop_tq, rollout):
        monkeypatch.setattr(module, "tq", SimpleNamespace(async_kv_put=put))
    return tags


def run(loop: str, *, validate: bool = False) -> Any:
    worker = Worker()
    _agent_loop_registry[loop] = {"_target_": f"{__name__}.{loop}"}
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
    asyncio.run(worker._run_prompt({**ROW, "agent_name": loop}, {"temperature": 1}, trajectory))
    return worker.output


class Failing(AgentLoopBase):
    async def run(self, sampling_params: Any, **kwargs: Any) -> Any:
        raise ConnectionError("the judge is away")


@pytest.mark.parametrize(
    ("loop", "validate", "is_fatal"),
    [
        ("Failing", False, False),
        ("Failing", True, False),
        ("Missing", False, True),
    ],
)
def test_a_failure_says_what_has_failed(queue: dict[str, Any], loop: str, validate: bool, is_fatal: bool) -> None:
    assert run(loop, validate=validate) is None
    tag = queue["agent_rl_errors u_0"]
    assert (tag["validate"], tag["fatal"]) == (validate, is_fatal)
    assert (f"{__name__}.Missing" if is_fatal else "ConnectionError: the judge is away") in tag["error"]
    assert queue["val u" if validate else "train u"] == {"status": "failure"}


class Scorer:
    def __init__(self, config: Any) -> None:
        self.config = config

    async def compute_score(self, data: int) -> dict[str, Any]:
        return {"reward_score": data, "model": self.config.actor_rollout_ref.model.path}


def test_a_worker_without_reward_workers_scores_here(compose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_queue, "init", lambda: None)
    monkeypatch.setattr(rollout, "AgentRewardLoopWorker", Scorer)
    config = compose()

    def handles(given: Any) -> Any:
        return rollout.AgentLoopWorker(config, None, None, given).reward_loop_worker_handles

    (handle,) = handles([])

    async def score() -> object:
        return await handle.compute_score.remote(2)

    assert asyncio.run(score()) == {"reward_score": 2, "model": config.actor_rollout_ref.model.path}
    for given in (["a worker"], None):  # there are some, or a model scores later
        assert handles(given) == given


class Scoring(rollout.AgentLoopWorker):
    """Keeps what the reward manager would get."""

    def __init__(self, manager: str) -> None:
        self.config = OmegaConf.create({"reward": {"reward_manager": {"name": manager, "source": "register"}}})
        self.processor, self.mm_processor_kwargs, self.given = None, {}, None
        self.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids)))
        self.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=self.score))]

    async def score(self, data: Any) -> dict[str, Any]:
        self.given = data.non_tensor_batch["tool_extra_fields"][-1].get("trajectory")
        if not isinstance(self.given, Trajectory):
            return await self.scored(data)
        worker = object.__new__(AgentRewardLoopWorker)
        worker.config, worker.reward_manager = self.config, SimpleNamespace(run_single=self.scored)
        return dict(await worker.compute_score(data))

    async def scored(self, data: Any) -> dict[str, Any]:
        info = getattr(self.given, "info", {})
        return {"reward_score": 1.0, "reward_extra_info": {"acc": 1.0}, **info}


def output_of(manager: str, **fields: Any) -> tuple[Any, Any]:
    worker, numbers = Scoring(manager), {"prompt_ids": [1, 2], "response_ids": [52, 50], "response_mask": [1, 1]}
    output = AgentLoopOutput(**numbers, metrics=AgentLoopMetrics(), num_turns=2)
    output.extra_fields = {"tool_rewards": [], **fields}
    row = {**ROW, "session_id": 1, "global_steps": 25, "data_source": "gsm8k", "extra_info": {"index": 7}}
    asyncio.run(worker._compute_score([output], kwargs={**row, "reward_model": {"ground_truth": "42"}}))
    return worker.given, output


def handed_over(manager: str, **fields: Any) -> tuple[Any, list[str]]:
    given, output = output_of(manager, **fields)
    return given, sorted(output.extra_fields)


def test_the_rewards_of_turns_are_stored_next_to_the_report_and_not_logged() -> None:
    own = Trajectory([], StopReason.ANSWERED, info={"turn_rewards": [0.25, 0.0]})
    fields = output_of("trajectory", trajectory=own)[1].as_dict()["extra_fields"]
    assert (fields["turn_rewards"], fields["reward_extra_info"]) == ([0.25, 0.0], {"acc": 1.0})


def test_our_manager_gets_a_trajectory_of_any_loop_others_plain_data_and_the_trainer_none() -> None:
    own = Trajectory([], StopReason.ANSWERED)
    ours, kept = handed_over("trajectory", trajectory=own)
    assert ours is own
    assert kept == ["reward_extra_info", "tool_rewards"]
    verls, _ = handed_over("trajectory")
    assert (verls.id, verls.answer, verls.info) == ("u_1", "42", {"step": 25, "split": None, "index": 7})
    assert handed_over("naive", trajectory=own)[0]["version"] == 1
    assert handed_over("naive")[0] is None
