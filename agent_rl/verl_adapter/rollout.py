"""verl's agent loop worker, extended to report failed sessions, keep their groups, and score locally.

A failed session is reported to the trainer with its reason, and the rest of its group is kept if possible. verl itself
only logs the error and marks the group as failed, so the asynchronous modes discard all samples of the group, and a
wrong configuration makes one group after another fail instead of stopping the run.

The worker also runs ReMax's greedily decoded episodes, as one extra session for each training prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import ray
import transfer_queue as tq
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.reward import resolve_reward_manager_cls
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ, apply_greedy_sampling_params

from agent_rl.agents.episode.loop import new_trajectory
from agent_rl.errors import UnscoredError
from agent_rl.rewards import groups
from agent_rl.trajectory import StopReason, Trajectory, Turn
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.algorithms.turns import REWARDS
from agent_rl.verl_adapter.failures import ERRORS_PARTITION, is_fatal, tag
from agent_rl.verl_adapter.manager import TRAJECTORY, TrajectoryRewardManager
from agent_rl.verl_adapter.reward_loop import AgentRewardLoopWorker
from agent_rl.verl_adapter.stragglers import EndedEarlyError
from agent_rl.verl_adapter.trained_samples import is_usable
from agent_rl.verl_adapter.verl_loop import whole_row

logger = logging.getLogger(__name__)


@dataclass
class _Prompt:
    """The running sessions of a prompt."""

    group: groups.Group
    ended: int = 0
    failed: dict[int, BaseException] = field(default_factory=dict)


_VerlsWorker: Any = AgentLoopWorkerTQ.__ray_actor_class__  # type: ignore[attr-defined]
_prompt: ContextVar[_Prompt] = ContextVar("_prompt")


class AgentLoopWorker(_VerlsWorker):
    """Runs the sessions of prompts, and scores the sessions itself if `reward.num_workers=0`.

    Scoring by a rule takes less time than calling a reward worker, which is a process that imports all of verl.
    """

    reward_loop_worker_handles: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unended: set[asyncio.Task[Any]] = set()  # running training sessions, except greedy ones
        self._ended_early: set[asyncio.Task[Any]] = set()
        if self.reward_loop_worker_handles is not None and not self.reward_loop_worker_handles:
            here = SimpleNamespace(remote=AgentRewardLoopWorker(self.config).compute_score)  # like a Ray actor
            self.reward_loop_worker_handles = [SimpleNamespace(compute_score=here)]

    @cached_property
    def _manager(self) -> type[Any]:
        return resolve_reward_manager_cls(self.config)

    def end_sessions(self) -> None:
        """Cancel the training sessions that have not ended; the trainer's `Stragglers` calls this method."""
        for session in self._unended:
            session.cancel(str(EndedEarlyError()))
        self._ended_early |= self._unended
        self._unended.clear()  # a second call must not interrupt the report of a session

    async def _run_prompt(self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **kwargs: Any) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        usual = rollout.val_kwargs.n if trajectory["validate"] else rollout.n
        number = int(prompt.get("__rollout_n__", usual))
        _prompt.set(_Prompt(groups.Group(number)))  # context visible to this task and to its sessions' tasks
        await super()._run_prompt(prompt, sampling_params, trajectory, **kwargs)

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str | None, **kwargs: Any
    ) -> None:
        """Run a session; if its prompt cannot be trained on, the prompt's last session raises the first failure."""
        prompt, session = _prompt.get(), kwargs["session_id"]
        agent_name = agent_name or self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        task = asyncio.current_task()
        assert task is not None
        if not (trajectory["validate"] or self._is_greedy(session)):
            self._unended.add(task)
        prompt.group.join()
        try:
            await super()._run_agent_loop(sampling_params, trajectory, agent_name=agent_name, **kwargs)
        except (Exception, asyncio.CancelledError) as failure:
            error = EndedEarlyError() if task in self._ended_early else failure
            key, report = f"{kwargs['uid']}_{session}", tag(error, bool(trajectory["validate"]))
            await tq.async_kv_put(key=key, partition_id=ERRORS_PARTITION, tag=report)
            prompt.failed[session] = error
            if trajectory["validate"] or is_fatal(error):
                raise
            logger.warning("A session of the prompt %s failed", kwargs["uid"], exc_info=error)
        finally:
            prompt.ended += 1
            self._unended.discard(task)
            self._ended_early.discard(task)
        is_last = prompt.ended == prompt.group.number and not trajectory["validate"]
        if is_last and prompt.failed and not is_usable(prompt.failed, prompt.group.number, self.config):
            raise next(iter(prompt.failed.values()))  # verl then marks the prompt as failed

    def _is_greedy(self, session: int) -> bool:
        """Whether a training session is the greedy session that ReMax needs."""
        return bool(self.config.algorithm.adv_estimator == remax.ESTIMATOR and session == remax.GREEDY_SESSION)

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        """Score a loop's last output, including that of verl's own loops, which produce no trajectory."""
        last = outputs[-1]
        if last.reward_score is None:
            give_trajectory(last, kwargs, self.tokenizer, self._manager)
        await super()._compute_score(outputs, kwargs)
        if last.reward_score is not None:  # the trainer fetches `extra_fields` at each step, but reads no trajectory
            last.extra_fields.pop(TRAJECTORY, None)
            if rewards := last.extra_fields.get("reward_extra_info", {}).pop(REWARDS, None):
                last.extra_fields[REWARDS] = rewards

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        """Score and store a loop's output; raise an error if it is empty, which verl would not notice."""
        if isinstance(output, list) and not output:
            raise UnscoredError("the agent loop returned no training sequence")
        self._unended.discard(asyncio.current_task())  # a session is not canceled while its outputs are written
        await super()._agent_loop_postprocess(output, validate, **kwargs)


def give_trajectory(output: AgentLoopOutput, columns: Mapping[str, Any], tokenizer: Any, manager: type[Any]) -> None:
    """Put the trajectory that the reward manager reads into `extra_fields`.

    `TrajectoryRewardManager` and its subclasses get the `Trajectory` of agent_rl's loops unchanged. For any other
    loop, these managers get a trajectory without an agent name, whose only turn and answer are the decoded response.
    All other managers get the trajectory as JSON data.

    Args:
        output: the last output of a session.
        columns: the row, as verl's worker passed it to the loop.
        tokenizer: the tokenizer that decodes the response.
        manager: the class of the reward manager.
    """
    trajectory = output.extra_fields.get(TRAJECTORY)
    if not issubclass(manager, TrajectoryRewardManager):
        if isinstance(trajectory, Trajectory):
            output.extra_fields[TRAJECTORY] = trajectory.to_dict()
    elif trajectory is None:
        trajectory = _of_response(output, columns, tokenizer)
        output.extra_fields = {**output.extra_fields, TRAJECTORY: trajectory}  # pydantic drops a mutated default


def _of_response(output: AgentLoopOutput, columns: Mapping[str, Any], tokenizer: Any) -> Trajectory:
    trajectory = new_trajectory(whole_row(columns), "")
    text, tokens = str(tokenizer.decode(output.response_ids, skip_special_tokens=True)), len(output.response_ids)
    trajectory.stop_reason = StopReason.ANSWERED
    trajectory.turns, trajectory.answer = [Turn(text=text, tokens=tokens)], text
    trajectory.prompt_tokens, trajectory.response_tokens = len(output.prompt_ids), tokens
    return trajectory


class AgentLoopManager(AgentLoopManagerTQ):
    """The value of `actor_rollout_ref.rollout.agent.agent_loop_manager_class` unless the user sets another value."""

    worker: type[AgentLoopWorker] = AgentLoopWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(self.worker)


class ReMaxAgentLoopWorker(AgentLoopWorker):
    """Runs an extra first session per training prompt; this session is decoded greedily and scored, but not trained on.

    verl's worker waits for all sessions of a prompt before it marks the prompt as finished, so the baseline is
    published before any of the prompt's samples is trained on. A failed greedy session is handled like other failures.
    """

    async def _run_prompt(self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **kwargs: Any) -> None:
        if not trajectory["validate"]:
            samples = prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n)
            prompt["__rollout_n__"] = samples + 1
        await super()._run_prompt(prompt, sampling_params, trajectory, **kwargs)

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: Any, **kwargs: Any) -> Any:
        if not trajectory["validate"] and self._is_greedy(kwargs["session_id"]):
            sampling_params = dict(sampling_params)
            apply_greedy_sampling_params(sampling_params)
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        if validate or not self._is_greedy(kwargs["session_id"]):
            await super()._agent_loop_postprocess(output, validate, **kwargs)
            return
        outputs = output if isinstance(output, list) else [output]
        await self._compute_score(outputs, kwargs=kwargs)
        await remax.publish(kwargs["uid"], float(outputs[-1].reward_score))


class ReMaxAgentLoopManager(AgentLoopManager):
    """The value of `actor_rollout_ref.rollout.agent.agent_loop_manager_class` for `algo=remax`."""

    worker = ReMaxAgentLoopWorker
