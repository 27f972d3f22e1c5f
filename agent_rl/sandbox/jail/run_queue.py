"""Measures how long a process waited for a core, which does not count as the process's own time."""

from __future__ import annotations

import contextlib
import os

PATIENCE = 20
"""Maximum wall time of a program that has to wait for cores, as a multiple of the program's time limit."""


def run_queue(pid: int, proc: int | None = None) -> tuple[float, float, bool]:
    """Return how many seconds a process ran on a core and waited for a core, and whether it may be waiting now.

    The kernel counts a wait only when the wait ends. The waiting time is the longest wait of any thread minus the core
    time of the other threads, so threads cannot prolong it by waiting for each other. If the kernel does not count
    waits, all values are 0.

    Args:
        pid: id of a process that has not been reaped yet.
        proc: a descriptor of /proc; None means this process's /proc.
    """
    counts, is_ready = [(0, 0)], False  # (nanoseconds running on a core, nanoseconds waiting for one)
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, ValueError):  # a thread or the process has ended
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
