"""Runs the greedy episodes of ReMax in verl's agent loop workers: one more session for each training prompt.

verl's worker waits for all sessions of a prompt before it marks the prompt as finished, so the baseline is published
before any of the prompt's samples is trained on. A greedy session that fails is a failed session like any other: it is
counted in `agent/unscored`.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.agent_loop_tq import apply_greedy_sampling_params

from agent_rl.verl_adapter.algorithms.remax import GREEDY_SESSION, publish
from agent_rl.verl_adapter.rollout import AgentLoopManager, AgentLoopWorker

__all__ = ["ReMaxAgentLoopManager", "ReMaxAgentLoopWorker"]


class ReMaxAgentLoopWorker(AgentLoopWorker):
    """The worker with one more session for each training prompt, the first, which is greedy and only scored."""

    async def _run_prompt(self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **kwargs: Any) -> None:
        if not trajectory["validate"]:
            samples = prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n)
            prompt["__rollout_n__"] = samples + 1
        await super()._run_prompt(prompt, sampling_params, trajectory, **kwargs)

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: Any, **kwargs: Any) -> Any:
        if _is_greedy(trajectory["validate"], kwargs):
            sampling_params = dict(sampling_params)
            apply_greedy_sampling_params(sampling_params)
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        if not _is_greedy(validate, kwargs):
            await super()._agent_loop_postprocess(output, validate, **kwargs)
            return
        outputs = output if isinstance(output, list) else [output]
        await self._compute_score(outputs, kwargs=kwargs)
        await publish(kwargs["uid"], float(outputs[-1].reward_score))


class ReMaxAgentLoopManager(AgentLoopManager):
    """`actor_rollout_ref.rollout.agent.agent_loop_manager_class` of `algo=remax`."""

    worker = ReMaxAgentLoopWorker


def _is_greedy(validate: bool, session: dict[str, Any]) -> bool:
    return not validate and session["session_id"] == GREEDY_SESSION
