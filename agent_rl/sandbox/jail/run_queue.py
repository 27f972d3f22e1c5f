"""How long a process was ready to run and had no core: seconds that are not its own."""

from __future__ import annotations

import contextlib
import os

__all__ = ["waited_s"]


def waited_s(pid: int, proc: int | None = None) -> float:
    """Seconds that a thread of `pid` has waited for a core that the process itself did not use; the most of any thread.

    No program can add to them: while a thread waits, its core runs another thread of the program, whose time is
    subtracted here, or somebody else's. 0 where the kernel does not count them.

    Args:
        pid: a process that has not been waited for.
        proc: a descriptor of /proc; None: that of this process.
    """
    tasks = f"{pid}/task" if proc is not None else f"/proc/{pid}/task"
    ran_waited = []
    with contextlib.suppress(OSError):
        folder = os.open(tasks, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            for task in os.listdir(folder):
                with (
                    contextlib.suppress(OSError, ValueError),  # it has ended meanwhile
                    open(os.open(f"{task}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file,
                ):
                    ran, waited, _ = map(int, file.read().split())
                    ran_waited.append((ran, waited))
        finally:
            os.close(folder)
    ran_ns = sum(ran for ran, _ in ran_waited)
    return max([0, *(waited + ran - ran_ns for ran, waited in ran_waited)]) / 1e9
