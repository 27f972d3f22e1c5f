"""Results of reusable tools, kept so that equal calls are executed once.

A `ResultCache` is bounded in entries and bytes and forgets the least recently used. Of concurrent equal calls one is
executed and the others wait for it. With a `DiskCache` behind it, results outlive the process and are shared with
other processes on this machine (SQLite in WAL mode: not for a network file system). It promises neither that two
processes never execute one call twice, nor that a file forgets anything: delete it when a tool's code or data changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from agent_rl.concurrency import PerLoop
from agent_rl.remote.disk_cache import DiskCache
from agent_rl.remote.reply_cache import MAX_BYTES, TextStore
from agent_rl.tools.base import ToolOutput
from agent_rl.trajectory import ToolResult, plain

__all__ = ["MAX_ENTRIES", "ResultCache", "canonical_json", "digest", "shared_cache"]

MAX_ENTRIES = 10_000


def canonical_json(value: Any) -> str:
    """One text for equal JSON data, whatever the order of its keys; arrays and mappings of other kinds count as JSON.

    Raises:
        ValueError: for a value that is not JSON.
        RecursionError: for data nested too deeply.
    """
    return json.dumps(plain("the value", value), sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """A short name of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class ResultCache:
    """Results by key, in memory, and in a file when there is one."""

    def __init__(self, file: DiskCache | None = None) -> None:
        self._store = TextStore(file, MAX_ENTRIES, MAX_BYTES)
        self._flights: PerLoop[dict[str, asyncio.Future[str | None]]] = PerLoop(dict)

    async def get(
        self, key: str, result: ToolResult, patience_s: float, execute: Callable[[], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        """What is kept under `key`, or else what `execute` gives, which is kept when it may be.

        Args:
            key: the same for equal calls.
            result: the call's; cache hits and the seconds of waiting are noted in it.
            patience_s: seconds to wait for equal calls that are being executed. When one fails or is cancelled, another
                is executed; those that have waited this long are executed beside it.
            execute: executes the call.
        """
        flights = self._flights.get()
        waited = 0.0
        while (kept := self._store.recall(key)) is None and key in flights and waited < patience_s:
            flight, started = flights[key], time.perf_counter()
            await asyncio.wait((flight,), timeout=patience_s - waited)
            waited += time.perf_counter() - started
            if flight.done() and (kept := flight.result()) is not None:
                break
        result.queue_seconds += waited
        if kept is not None:
            return _decode(kept, result)
        if key in flights:
            return await execute()
        flight = flights[key] = asyncio.get_running_loop().create_future()
        try:
            if (kept := await self._store.get(key)) is not None:
                return _decode(kept, result)
            output = await execute()
            kept = _encode(output)
            if kept is not None:
                await self._store.put(key, kept)
            return output
        finally:
            del flights[key]
            flight.set_result(kept)


@cache
def shared_cache(path: str | None) -> ResultCache:
    """The cache that all trajectories of this process share, one for each file.

    Raises:
        ConfigError: when the file cannot be used.
    """
    return ResultCache(DiskCache(path, key="agent_rl.tools.cache_path", kind="tool results") if path else None)


def _encode(output: ToolOutput) -> str | None:
    """JSON; None for a result that is not kept: one that ends the episode, or has images."""
    if output.answer is not None or output.images:
        return None
    return json.dumps([output.text, output.reward, output.metrics])


def _decode(kept: str, result: ToolResult) -> ToolOutput:
    result.metrics["cached"] = True
    text, reward, metrics = json.loads(kept)
    return ToolOutput(text, reward, metrics)
