"""Delays garbage collection in an agent-loop worker until no episode runs, where that is possible.

A collection stops all trajectories of the process. Episodes leave few reference cycles, so collection waits for a
pause, or until there are `AT_MOST` new objects. Objects that the worker has loaded stay until it ends and are excluded.
`tests/benchmarks/test_loops.py` measures what it saves.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["AT_MOST", "PAUSE_S", "WORTHWHILE", "collected_in_pauses"]

WORTHWHILE = 20_000
"""New objects after which a pause is used for a collection."""
AT_MOST = 500_000
"""New objects after which there is a collection in any case."""
PAUSE_S = 0.05
"""Seconds without an episode that make a pause: in this time the last trajectory is scored and stored."""

_running = 0


@asynccontextmanager
async def collected_in_pauses() -> AsyncIterator[None]:
    """Run an episode; its garbage is collected when no other episode runs."""
    global _running
    if gc.get_threshold()[0] != AT_MOST:
        gc.freeze()
        gc.set_threshold(AT_MOST, *gc.get_threshold()[1:])
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running and gc.get_count()[0] > WORTHWHILE:
            asyncio.get_running_loop().call_later(PAUSE_S, _collect)


def _collect() -> None:
    if not _running and gc.get_count()[0] > WORTHWHILE:
        gc.collect()
