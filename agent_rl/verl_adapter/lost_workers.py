"""Stops a run in which a process has died that nobody asks: verl would wait for its trajectories for ever.

Such are the agent-loop workers, in which agents, tools and rewards run, and the processes of TransferQueue, which hold
all trajectories: the kernel ends a large process first where memory is short. An engine or a trainer's worker that has
died is missed by the next call.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from agent_rl.errors import FatalError

__all__ = ["LostProcessError", "stop_without_workers"]

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


def stop_without_workers(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: raise an error in `fit` when such a process has died."""
    original = module.PPOTrainer.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _watched():
            return original(self, *args, **kwargs)

    module.PPOTrainer.fit = fit


@contextmanager
def _watched() -> Iterator[None]:
    """Raise an error in this thread, which must be the main one, when a process has died."""
    lost: list[LostProcessError] = []
    done = threading.Event()

    def stop(*_: object) -> None:
        if lost and not done.is_set():
            done.set()
            raise lost[0]

    def look() -> None:
        while not done.wait(INTERVAL_S):
            if (error := _lost()) is not None:
                lost.append(error)
                os.kill(os.getpid(), SIGNAL)
                return

    before = signal.signal(SIGNAL, stop)
    threading.Thread(target=look, name="agent_rl_lost_workers", daemon=True).start()
    try:
        yield
    finally:
        done.set()
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
