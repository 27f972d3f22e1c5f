"""Counts failed trajectories by reason, and raises an error with the reason if a run cannot continue.

A run also stops if a bug in the user's code occurs too often; the trainer counts the reports of all workers.

verl itself only logs a trajectory's error in the worker, and drops the trajectory or its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from hydra.errors import InstantiationException

from agent_rl.errors import FatalError, UnscoredError, did_you_mean
from agent_rl.settings.user_code import BrokenCallError, RepeatedBugs
from agent_rl.trajectory.selection import SampleFate
from agent_rl.verl_adapter.stragglers import EndedEarlyError

ERRORS_PARTITION = "agent_rl_errors"
"""TransferQueue partition in which workers report each failed trajectory or bug to the trainer, as a tag."""


class FailedSessions:
    """A run's failed sessions, as its trainer reads them from TransferQueue.

    Args:
        max_unscored_share: `agent_rl.reward.max_unscored_share`.
    """

    def __init__(self, max_unscored_share: float) -> None:
        self._limit = max_unscored_share
        self._tags: Mapping[str, Mapping[str, Any]] = {}
        self._counted: set[str] = set()
        self._bugs = RepeatedBugs()

    def see(self, tags: Mapping[str, Mapping[str, Any]]) -> None:
        """Read all tags in `ERRORS_PARTITION`, new and old.

        Raises:
            FatalError: a worker reported a fatal error, or a bug in the user's code has occurred eight times.
        """
        self._tags = tags
        for key, report in tags.items():
            if report.get("fatal"):
                raise FatalError(report["error"])
            if report.get("bug") and key not in self._counted:
                self._counted.add(key)
                self._bugs.add(report["bug"], report["error"])

    def take(self) -> dict[str, Mapping[str, Any]]:
        """Return the tags, by session, of training sessions that failed since the last call, and clear the partition.

        Raises:
            FatalError: the tags contain one of the errors that `see` raises.
        """
        import transfer_queue as tq

        tags = (tq.kv_list(ERRORS_PARTITION) or {}).get(ERRORS_PARTITION, {})
        if tags:
            self.see(tags)
            tq.kv_clear(keys=list(tags), partition_id=ERRORS_PARTITION)
        return {key: each for key, each in tags.items() if not each["validate"] and not each.get("scored")}

    def require_scored(self, scored: int, errors: Sequence[str]) -> None:
        """Stop the run if the share of unscored trajectories exceeds the limit.

        Args:
            scored: number of the step's trajectories with a score.
            errors: the reasons why the other trajectories have no score.

        Raises:
            UnscoredError: the limit is exceeded; the error lists the most frequent reasons.
        """
        if not errors or len(errors) <= self._limit * (scored + len(errors)):
            return
        reasons = "; ".join(f"{count} times: {reason}" for reason, count in Counter(errors).most_common(3))
        raise UnscoredError(
            f"{len(errors)} of {scored + len(errors)} trajectories of the step are unscored, more than "
            f"agent_rl.reward.max_unscored_share={self._limit:g}. {reasons}. Fix the cause, or raise the share"
        )

    def nothing_usable(self, problem: object, of: str = "in this step") -> UnscoredError:
        """Return the error for a step or validation whose trajectories all failed, with the latest reason."""
        tags = [each for each in self._tags.values() if not each.get("scored")]
        last = f"; {len(tags)} failed, the last with: {tags[-1].get('error')}" if tags else ""
        return UnscoredError(f"no trajectory {of} is usable: {problem}{last}")


def clear_restored() -> None:
    """Clear the partitions that an asynchronous run's checkpoint restores although that run has already read them."""
    import transfer_queue as tq

    for partition in (ERRORS_PARTITION, "val"):
        tags = (tq.kv_list(partition) or {}).get(partition, {})
        if tags:
            tq.kv_clear(keys=list(tags), partition_id=partition)


_end: ContextVar[SampleFate] = ContextVar("_end", default=SampleFate("lost"))  # noqa: B039 - a SampleFate is immutable
"""The size of the current task's session so far, which is reported if the session fails."""


def measure(tokens: float, turns: float | None) -> None:
    """Store the size of the current task's session, which is reported if the session fails later."""
    _end.set(SampleFate("lost", tokens, turns))


def tag(error: BaseException, validate: bool) -> dict[str, Any]:
    """Return the tag that reports the current task's failed session to the trainer."""
    end = _end.get()
    reason = {"error": f"{type(error).__name__}: {_reason(error)}", "fatal": is_fatal(error), "validate": validate}
    fate = "ended" if isinstance(error, EndedEarlyError) else "lost"
    return {**reason, "bug": getattr(error, "bug", ""), "fate": fate, "tokens": end.tokens, "turns": end.turns}


async def report_bug(session: str, error: BrokenCallError) -> None:
    """Report a bug in the user's code to the trainer even though the session is scored."""
    import transfer_queue as tq

    report = {**tag(error, validate=False), "scored": True}
    await tq.async_kv_put(key=f"{session}_bug", partition_id=ERRORS_PARTITION, tag=report)


def is_fatal(error: BaseException) -> bool:
    """Whether an error must stop the run: it is fatal, an agent loop cannot be constructed, or a worker has died."""
    from ray.exceptions import ActorDiedError

    causes, fatal = (error, getattr(error, "cause", None)), FatalError | InstantiationException | ActorDiedError
    return _is_unregistered(error) or any(isinstance(each, fatal) for each in causes)


def _is_unregistered(error: BaseException) -> bool:
    """Whether the error is verl's assertion that an agent loop is not registered."""
    return isinstance(error, AssertionError) and "not registered" in str(error)


def _reason(error: BaseException) -> str:
    """Return the error's message, without the remote traceback that Ray adds."""
    if not _is_unregistered(error):
        return str(getattr(error, "cause", None) or error)
    import verl.experimental.agent_loop.agent_loop as agent_loop

    name = str(error).removeprefix("Agent loop ").split(" ")[0]
    return f"agent loop {name!r} is not registered. {did_you_mean(name, agent_loop._agent_loop_registry)}"
