"""Delays garbage collection in an agent-loop worker until no episode runs, where that is possible.

A collection stops all trajectories of the process. Episodes leave few reference cycles, and what the worker has loaded
stays until it ends: the latter is excluded from collections, and the former waits for a pause, or until there are
`AT_MOST` new objects. `tests/benchmarks/test_loops.py` measures what it saves.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["AT_MOST", "PAUSE_S", "WORTHWHILE", "collected_in_pauses"]

WORTHWHILE = 20_000
"""New objects for which a pause is used."""
AT_MOST = 500_000
"""New objects after which there is a collection in any case."""
PAUSE_S = 0.05
"""Seconds without an episode that make a pause: what the last one gave is scored and stored first."""

_running = 0


@asynccontextmanager
async def collected_in_pauses() -> AsyncIterator[None]:
    """Around an episode: the collection of what it leaves comes when no other runs."""
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
