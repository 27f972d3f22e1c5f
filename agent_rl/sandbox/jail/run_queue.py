"""Seconds in which a process was ready to run and had no core, which are not its own."""

from __future__ import annotations

import contextlib
import os

__all__ = ["PATIENCE", "run_queue"]

PATIENCE = 20
"""Times its limit that a program may take by the clock while it waits for a core."""


def run_queue(pid: int, proc: int | None = None) -> tuple[float, float, bool]:
    """How long a process has had a core and has waited for one, in seconds, and whether it may be waiting now.

    The kernel adds a wait when it is over. Waiting is the most of any thread, less what its other threads had: threads
    that wait for each other cannot lengthen it. All are 0 where the kernel does not count them.

    Args:
        pid: the process, which has not been reaped.
        proc: a descriptor of /proc; None: that of this process.
    """
    counts, is_ready = [(0, 0)], False  # nanoseconds on a core, and waiting for one
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, ValueError):  # a thread, or the process, is gone
        path = f"{'' if proc is not None else '/proc/'}{pid}/task"
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        stack.callback(os.close, folder)
        for task in os.listdir(folder):
            stat, schedstat = (
                os.open(f"{task}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder) for name in ("stat", "schedstat")
            )
            stack.callback(os.close, stat)
            stack.callback(os.close, schedstat)
            is_ready |= os.read(stat, 1000).rpartition(b")")[2].startswith(b" R")
            ran, waited, _ = map(int, os.read(schedstat, 100).split())
            counts.append((ran, waited))
    ran_ns = sum(ran for ran, _ in counts)
    return ran_ns / 1e9, max(0, max(map(sum, counts)) - ran_ns) / 1e9, is_ready
