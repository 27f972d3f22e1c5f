"""Other processes: which are there, and waiting for what they do."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["alive", "children", "until", "wait_until"]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def children(pid: int) -> list[int]:
    """The children of a process's first thread; none where the process is gone."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


async def until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Wait for other processes, by polling."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def wait_until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """The same without an event loop."""
    asyncio.run(until(condition, limit_s))
