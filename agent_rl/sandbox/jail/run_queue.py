"""Seconds in which a process was ready to run and had no core: they are not its own."""

from __future__ import annotations

import contextlib
import os

__all__ = ["waited_s"]


def waited_s(pid: int, proc: int | None = None) -> float:
    """The most seconds that a thread of `pid` has waited for a core, less those in which its other threads used one.

    A program cannot add to them by threads that wait for each other. 0 where the kernel does not count them.

    Args:
        pid: the process, which has not been reaped.
        proc: a descriptor of /proc; None: that of this process.
    """
    counts = [(0, 0)]  # nanoseconds on a core, and waiting for one
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, ValueError):  # a thread, or the process, is gone
        path = f"{'' if proc is not None else '/proc/'}{pid}/task"
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        stack.callback(os.close, folder)
        for task in os.listdir(folder):
            file = os.open(f"{task}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            stack.callback(os.close, file)
            ran, waited, _ = map(int, os.read(file, 100).split())
            counts.append((ran, waited))
    return max(0, max(map(sum, counts)) - sum(ran for ran, _ in counts)) / 1e9
