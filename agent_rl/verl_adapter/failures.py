"""Patches that count failed trajectories with their reasons, and stop a run that cannot continue, with the reason.

The reason may be a bug in the user's code that has happened too often: the trainer counts what all workers report.

verl only logs the error in the worker and drops the trajectory or its group.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from hydra.errors import InstantiationException

from agent_rl.errors import FatalError, UnscoredError, did_you_mean
from agent_rl.rewards import groups
from agent_rl.settings import AgentRLSettings
from agent_rl.user_code import RepeatedBugs
from agent_rl.verl_adapter.survivors import SampleFate, finals, is_usable, samples

__all__ = [
    "ERRORS_PARTITION",
    "error_stops",
    "filter_limit",
    "measure",
    "not_trained",
    "nothing_usable",
    "outputs_of_sessions",
    "reported",
    "require_scored",
    "require_working",
    "session_errors",
]

logger = logging.getLogger(__name__)

ERRORS_PARTITION = "agent_rl_errors"
"""TransferQueue partition with a tag for each failed trajectory, from the workers for the trainer."""

not_trained: list[SampleFate] = []
"""Scored samples of the trainer's run that were left out since the last step."""
_ends: WeakKeyDictionary[Any, SampleFate] = WeakKeyDictionary()
"""How far the session of a task of this worker came before it may have failed."""
_with_output: WeakSet[Any] = WeakSet()
"""The tasks whose agent loop returned training sequences."""


def measure(tokens: float, turns: float) -> None:
    """Note the size of the session of the current task, in case it fails later."""
    _ends[asyncio.current_task()] = SampleFate("lost", tokens, turns)


def outputs_of_sessions(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: note which sessions return training sequences, which are then scored.

    A session whose loop returns an empty list is finished for verl, although it has written nothing.
    """
    original = module.AgentLoopWorker._compute_score

    @functools.wraps(original)
    async def compute_score(self: Any, *args: Any, **kwargs: Any) -> None:
        _with_output.add(asyncio.current_task())
        await original(self, *args, **kwargs)

    module.AgentLoopWorker._compute_score = compute_score


def session_errors(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.agent_loop_tq`: report why a trajectory failed, and keep the group without it.

    verl logs the error and marks the group as failed, without a count: the asynchronous modes throw away all of its
    samples, and a wrong configuration fails one group after the other instead of stopping the run. Here a group that
    can be trained on without the failed samples is finished. Its samples are also registered, before they begin.
    """
    original = module._settle_session_tasks

    @functools.wraps(original)
    async def settle(tasks: list[asyncio.Task[Any]]) -> list[BaseException]:
        groups.expect(tasks)
        calls = [_call(task) for task in tasks]
        if not all(calls):  # they have ended: verl settles them again after an error of its own
            return list(await original(tasks))
        validate, config = bool(calls[0]["trajectory"]["validate"]), calls[0]["self"].config
        await original(tasks)
        failed = {}
        for row, task in zip(calls, tasks, strict=True):
            if (error := _error(task)) is not None:
                failed[row["session_id"]] = error
                key = f"{row['uid']}_{row['session_id']}"
                tag = _tag(error, validate, _ends.get(task, SampleFate("lost")))
                await module.tq.async_kv_put(key=key, partition_id=ERRORS_PARTITION, tag=tag)
        if validate or any(map(_is_fatal, failed.values())) or not is_usable(failed, len(tasks), config):
            return list(failed.values())
        for error in failed.values():  # verl logs those that are returned
            logger.error("A session failed; the others of its group are kept", exc_info=error)
        return []

    module._settle_session_tasks = settle  # type: ignore[attr-defined]


def _call(task: asyncio.Task[Any]) -> dict[str, Any]:
    """The arguments of a session that has not begun yet, and its worker as `self`; Ray wraps the methods of actors."""
    found: dict[str, Any] = inspect.getcoroutinelocals(task.get_coro())  # type: ignore[arg-type]
    return {**found, **found.get("kwargs", {}), **found.get("_kwargs", {})}


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    """Why the session of a task that has ended has written nothing; None: it has written something."""
    error = asyncio.CancelledError("cancelled") if task.cancelled() else task.exception()
    if error is None and task not in _with_output:
        return UnscoredError("the agent loop returned no training sequence")
    return error


def _tag(error: BaseException, validate: bool, end: SampleFate) -> dict[str, Any]:
    """What the trainer gets of a failed session."""
    tag = {"error": f"{type(error).__name__}: {_reason(error)}", "fatal": _is_fatal(error), "validate": validate}
    return {**tag, "bug": getattr(error, "bug", ""), "tokens": end.tokens, "turns": end.turns}


def error_stops(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.replay_buffer`: stop at a fatal error, and give the reason if every trajectory failed.

    The asynchronous buffer replaces failed groups forever; it stops when twice the batch failed and no group finished.
    """
    original_sync = module.ReplayBuffer._sync_metadata_from_transfer_queue
    original_wait = module.ReplayBufferAsync.wait_for_sampleable
    original_evict = module.ReplayBuffer._evict_terminal_groups

    @functools.wraps(original_sync)
    def sync(self: Any) -> None:
        original_sync(self)
        require_working(self.partitions.get(ERRORS_PARTITION, {}))

    @functools.wraps(original_wait)
    def wait(self: Any, global_steps: int, partition_id: str, target_count: int) -> Any:
        self._hopeless, self._failed_in_a_row = 2 * target_count, 0
        return original_wait(self, global_steps, partition_id, target_count)

    @functools.wraps(original_evict)
    def evict(self: Any, global_steps: int, partition_id: str, reasons: Any) -> Any:
        stale, filtered, failures = reasons[:3]  # they may overlap
        for fate, uids in (("stale", stale), ("filtered", filtered - stale), ("evicted", failures - stale - filtered)):
            tags = {key: tag for key, tag in self.partitions[partition_id].items() if key.split("_")[0] in uids}
            not_trained.extend(samples(fate, tags, reported(module.tq, tags, partition_id)))
        if isinstance(self, module.ReplayBufferAsync):
            self._failed_in_a_row = 0 if self.finished_keys[partition_id] else self._failed_in_a_row + len(failures)
            if failures and self._failed_in_a_row >= self._hopeless:
                raise UnscoredError(nothing_usable(self, f"{self._failed_in_a_row} groups failed in a row"))
        return original_evict(self, global_steps, partition_id, reasons)

    module.ReplayBuffer._sync_metadata_from_transfer_queue = sync
    module.ReplayBufferAsync.wait_for_sampleable = wait
    module.ReplayBuffer._evict_terminal_groups = evict
    for buffer in (module.ReplayBuffer, module.ReplayBufferAsync):
        buffer.sample = _explained(buffer.sample)


def reported(queue: Any, keys: Iterable[str], partition_id: str) -> list[dict[str, Any]]:
    """What the reward manager reports of each trajectory, in the order of `finals`; empty while it has no score."""
    if not (last := finals(list(keys))):
        return []
    data = queue.kv_batch_get(keys=last, partition_id=partition_id, select_fields=["extra_fields"])
    return [dict(getattr(each, "data", each)).get("reward_extra_info") or {} for each in data["extra_fields"]]


def filter_limit(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: obey `algorithm.filter_groups.max_num_gen_batches`, which v1 ignores.

    Without the limit a run samples forever if all samples of each group get the same reward.
    """
    original_build = module.PPOTrainer._build_replay_buffer

    @functools.wraps(original_build)
    def build(self: Any) -> Any:
        buffer = original_build(self)
        groups = self.config.algorithm.filter_groups
        if groups.enable and groups.max_num_gen_batches > 0:
            limit = groups.max_num_gen_batches * self.config.data.train_batch_size
            buffer._evict_terminal_groups = _limited(buffer._evict_terminal_groups, limit)
        return buffer

    module.PPOTrainer._build_replay_buffer = build


def require_working(failed: Mapping[str, Mapping[str, Any]]) -> None:
    """Stop at a fatal error of a worker, and at a bug of the user's code that has happened eight times in the run.

    Args:
        failed: the tags of `ERRORS_PARTITION` by key, new ones and those that were there before.

    Raises:
        FatalError: with the reason.
    """
    for key, tag in failed.items():
        if tag.get("fatal"):
            raise FatalError(tag["error"])
        if tag.get("bug") and key not in _counted:
            _counted.add(key)
            _bugs.add(tag["bug"], tag["error"])


_counted: set[str] = set()
"""Keys of the tags that are in `_bugs`."""
_bugs = RepeatedBugs()
"""Of the run: it has one trainer."""


def require_scored(config: Any, scored: int, errors: Sequence[str]) -> None:
    """Stop a run in which the unscored share exceeds `agent_rl.reward.max_unscored_share`.

    Args:
        config: the trainer's whole configuration.
        scored: number of the step's trajectories with a score.
        errors: the reasons why the others have none.

    Raises:
        UnscoredError: with the most frequent reasons.
    """
    limit = AgentRLSettings.from_config(config).reward.max_unscored_share
    if not errors or len(errors) <= limit * (scored + len(errors)):
        return
    reasons = "; ".join(f"{count} times: {reason}" for reason, count in Counter(errors).most_common(3))
    raise UnscoredError(
        f"{len(errors)} of {scored + len(errors)} trajectories of the step went unscored, more than "
        f"agent_rl.reward.max_unscored_share={limit:g}. {reasons}. Fix what fails, or raise the share"
    )


def _limited(evict: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """The replay buffer's eviction, with an error when one step has replaced more groups than the limit."""
    replaced: Counter[int] = Counter()

    def limited(global_steps: int, *args: Any, **kwargs: Any) -> Any:
        evicted = evict(global_steps, *args, **kwargs)
        replaced[global_steps] += evicted[2]
        if replaced[global_steps] > limit:
            raise FatalError(
                f"step {global_steps} has replaced {replaced[global_steps]} groups whose samples all got the same "
                "reward: choose problems that the policy solves now and then, or raise "
                "algorithm.filter_groups.max_num_gen_batches"
            )
        return evicted

    return limited


def _explained(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replay buffer's `sample` with an error that gives the reason for an empty batch.

    `sampling` says whether a sample is being waited for, also after an error has ended the wait.
    """

    @functools.wraps(original)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.sampling = True
        try:
            batch, metrics = original(self, *args, **kwargs)
        except RuntimeError as error:  # verl's for training; in validation it continues with an empty batch
            if "no materializable trajectories" not in str(error):
                raise
            raise UnscoredError(nothing_usable(self, error)) from error
        if not batch.keys and batch.partition_id != "val":
            raise UnscoredError(nothing_usable(self, "every trajectory failed"))
        self.sampling = False
        return batch, metrics

    return sample


def nothing_usable(buffer: Any, problem: object, of: str = "of the step") -> str:
    """A sentence with the last error that the replay buffer has read."""
    tags = list(buffer.partitions.get(ERRORS_PARTITION, {}).values())
    last = f"; {len(tags)} failed, the last with: {tags[-1].get('error')}" if tags else ""
    return f"no trajectory {of} is usable: {problem}{last}"


def _is_fatal(error: BaseException) -> bool:
    """Whether the run must stop: a fatal error, here or in a reward worker, or a loop that cannot be constructed."""
    causes = (error, getattr(error, "cause", None))
    return any(isinstance(each, FatalError | InstantiationException) for each in causes) or _unregistered(error)


def _unregistered(error: BaseException) -> bool:
    """Whether verl asserted that an agent loop is not registered."""
    return isinstance(error, AssertionError) and "not registered" in str(error)


def _reason(error: BaseException) -> str:
    """The error's own message: Ray's wrapper prints the remote traceback around it."""
    cause = getattr(error, "cause", None)
    if _unregistered(error):
        import verl.experimental.agent_loop.agent_loop as agent_loop

        known: Mapping[str, Any] = agent_loop._agent_loop_registry
        name = str(error).removeprefix("Agent loop ").split(" ")[0]
        return f"agent loop {name!r} is not registered. {did_you_mean(name, known)}"
    return str(cause or error)
