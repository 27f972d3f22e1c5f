"""`Stragglers`: ends the last sessions of a step early, so that a few slow ones do not delay all others.

verl declares `actor_rollout_ref.rollout.over_sample_rate`, but no code of verl 0.9.1 reads it. The trainer counts the
sessions that have ended whenever it polls TransferQueue; the agent loop workers cancel the others. The update leaves
cancelled sessions out like failed ones, and the metrics count them as `ended`.
"""

from __future__ import annotations

import time
from typing import Any

from agent_rl.errors import UnscoredError
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
        limit_s: seconds of sampling after which all sessions are ended; None: no limit.

    Attributes:
        are_ended: whether sessions of this step were ended early.
    """

    def __init__(self, trainer: Any, share: float, limit_s: float | None) -> None:
        self._trainer, self._share, self._limit_s = trainer, share, limit_s
        self._began = 0.0
        self.are_ended = False

    def begin(self) -> None:
        """Begin the sampling of a step."""
        self._began, self.are_ended = time.monotonic(), False

    def look(self, prompts: int, ended_keys: list[str], failed: int) -> None:
        """End the other sessions if enough have ended, or if the time is up.

        Args:
            prompts: number of the step's prompts.
            ended_keys: the keys of the training sequences of ended sessions.
            failed: number of sessions that have failed.
        """
        if self.are_ended or not (self._share or self._limit_s):
            return
        sessions = prompts * self._trainer.config.actor_rollout_ref.rollout.n
        left = sessions - failed - len(final_rows(ended_keys))
        is_late = self._limit_s is not None and time.monotonic() - self._began > self._limit_s
        if left > 0 and (is_late or left <= self._share * sessions):
            import ray

            self.are_ended = True
            ray.get([worker.end_sessions.remote() for worker in self._trainer.agent_loop_manager.agent_loop_workers])
