"""`Stragglers`: ends the last sessions of a step early, so that a few slow sessions do not delay the step.

verl 0.9.1 declares `actor_rollout_ref.rollout.over_sample_rate`, but none of its code reads it. Whenever the trainer
polls TransferQueue, it counts the sessions that have ended; the agent-loop workers cancel the remaining sessions. The
update leaves out canceled sessions like failed ones, and the metrics count canceled sessions as `ended`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.trained_samples import final_rows

SHARE, SECONDS = "actor_rollout_ref.rollout.over_sample_rate", "agent_rl.run.max_sampling_s"


class EndedEarlyError(UnscoredError):
    """A session was ended early because others had to wait for it."""

    def __init__(self) -> None:
        super().__init__(f"the session was ended early, as {SHARE} or {SECONDS} demands")


class Stragglers:
    """The sessions of a step that have not ended.

    Args:
        trainer: the `AgentTrainer`.
        share: maximum share of the step's sessions that are ended early, once all others have ended.
        limit_s: seconds of sampling after which all remaining sessions are ended; None means no limit.

    Attributes:
        are_ended: whether sessions of this step were ended early.
    """

    def __init__(self, trainer: Any, share: float, limit_s: float | None) -> None:
        self._trainer, self._share, self._limit_s = trainer, share, limit_s
        self._began = 0.0
        self.are_ended = False

    def begin(self) -> None:
        """Record that the sampling of a step begins."""
        self._began, self.are_ended = time.monotonic(), False

    def look(
        self, prompts: Collection[str], ended_keys: Collection[str], failed: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """End the remaining sessions if enough have ended or the time is up; ReMax's greedy sessions are never ended.

        Args:
            prompts: the uids of the step's prompts.
            ended_keys: the keys of the training sequences of ended sessions.
            failed: the tags of failed sessions, by `{uid}_{session}`.
        """
        if not (self._share or self._limit_s):
            return
        config = self._trainer.config
        is_remax = config.algorithm.adv_estimator == remax.ESTIMATOR
        lost = [key for key, tag in failed.items() if tag.get("validate") is False and not tag.get("scored")]
        lost = [key for key in lost if key.split("_")[0] in prompts]
        lost = [key for key in lost if not (is_remax and key.endswith(f"_{remax.GREEDY_SESSION}"))]
        sessions = len(prompts) * config.actor_rollout_ref.rollout.n
        left = sessions - len(lost) - len(final_rows(list(ended_keys)))
        is_late = self._limit_s is not None and time.monotonic() - self._began > self._limit_s
        if left > 0 and (is_late or left <= self._share * sessions):
            import ray

            self.are_ended = True
            ray.get([worker.end_sessions.remote() for worker in self._trainer.agent_loop_manager.agent_loop_workers])
