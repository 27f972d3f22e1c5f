"""Stops a run that waits without end: for a process that has died, or for a weight sync in a deadlock.

verl asks neither the agent-loop workers, in which agents, tools and rewards run, nor the processes of TransferQueue,
which hold all trajectories; the kernel ends a large process first where memory is short. An engine or a trainer's
worker that has died is missed by the next call. The deadlock is verl#7990, in `mode=colocate_async`.
"""

from __future__ import annotations

import functools
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_rl.errors import FatalError

__all__ = ["LateSyncError", "LostProcessError", "raised", "watched"]

INTERVAL_S = 5.0
"""Between two looks, each of which takes a millisecond. Ray's public list of actors needs its dashboard."""
SIGNAL = signal.SIGUSR1
"""Ends whatever the trainer waits for."""
_WATCHED = re.compile("AgentLoopWorker|(?P<store>TransferQueueController|StorageUnit)")


class LostProcessError(FatalError):
    """A process of the run has died.

    Args:
        message: which, and why as far as Ray knows.
        has_store: whether the trajectories can still be read.
    """

    def __init__(self, message: str, has_store: bool = True) -> None:
        super().__init__(message)
        self.has_store = has_store


class LateSyncError(FatalError):
    """A weight sync has taken longer than `agent_rl.run.weight_sync_timeout_s`."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"the weight sync has taken longer than agent_rl.run.weight_sync_timeout_s={limit_s:g} seconds. With many "
            "requests outstanding this is a deadlock of verl (https://github.com/verl-project/verl/issues/7990): start "
            "fewer (trainer.v1.colocate_async.num_warmup_batches), set mode=sync, or raise the limit"
        )
        self.limit_s = limit_s


@contextmanager
def raised(trainer: Any, sync_limit_s: float) -> Iterator[None]:
    """Raise an error in this block, the trainer's `fit`, when a process has died or a weight sync takes too long."""
    for name in ("checkpoint_manager", "standalone_checkpoint_manager"):
        if (manager := getattr(trainer, name, None)) is not None:
            manager.update_weights = functools.partial(_limited, sync_limit_s, manager.update_weights)
    from ray.exceptions import RayActorError

    with watched(_lost, INTERVAL_S):
        try:
            yield
        except RayActorError as error:  # verl has asked a dead process before the next look
            if lost := _lost():
                raise lost from error
            raise


def _limited(limit_s: float, sync: Any, *args: Any, **kwargs: Any) -> Any:
    with watched(lambda: LateSyncError(limit_s), limit_s):
        return sync(*args, **kwargs)


@contextmanager
def watched(look: Callable[[], Exception | None], interval_s: float) -> Iterator[None]:
    """Raise an error in this thread, which must be the main one, while the block runs; blocks may be nested.

    Args:
        look: called in another thread; gives the error to raise, or None.
        interval_s: seconds before each look.
    """
    errors: list[Exception] = []
    done = threading.Event()

    def stop(*args: Any) -> None:
        if errors and not done.is_set():
            done.set()
            raise errors[0]
        if callable(before):  # the signal is for a block around this one
            before(*args)

    def watch() -> None:
        while not done.wait(interval_s):
            if (error := look()) is not None:
                errors.append(error)
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
                return

    before = signal.getsignal(SIGNAL)
    signal.signal(SIGNAL, stop)
    thread = threading.Thread(target=watch, name="agent_rl_watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(INTERVAL_S)  # a signal that comes later would end the process
        signal.signal(SIGNAL, before)


def _lost() -> LostProcessError | None:
    """The error for the first process of this job that is dead."""
    import ray
    from ray._private.state import actors

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    for actor in actors(job_id=job, actor_state_name="DEAD").values():
        if found := _WATCHED.search(actor["ActorClassName"]):
            return LostProcessError(_sentence(actor), has_store=found["store"] is None)
    return None


def _sentence(actor: Mapping[str, Any]) -> str:
    said = str(actor["DeathCause"])
    cause = "memory was short" if "OUT_OF_MEMORY" in said else "it crashed, or was killed (is memory short?)"
    return f"the process of {actor['ActorClassName']} (pid {actor['Pid']}) has died: {cause}"
