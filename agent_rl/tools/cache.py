"""Keeps the results of reusable tools, so that equal calls are executed once.

In memory, the least recently used result is dropped. In a file, results outlive the process and are shared with other
processes on this machine. Two processes may still execute the same call twice, and a file never drops a result: delete
it when a tool's code or data changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from agent_rl.tools.base import ToolOutput
from agent_rl.trajectory import ToolResult, plain
from agent_rl.work.store import Cache

__all__ = ["ResultCache", "canonical_json", "digest", "shared_cache"]


def canonical_json(value: Any) -> str:
    """Return the same text for equal JSON data, regardless of key order; numpy arrays and other mappings count as JSON.

    Raises:
        ValueError: a value is not JSON.
        RecursionError: the data is nested too deeply.
    """
    return json.dumps(plain("the value", value), sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """Return a short hash of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class ResultCache:
    """Tool results by key, in memory or in the file `path`."""

    def __init__(self, path: str | None = None) -> None:
        self._cache = Cache(path, "agent_rl.tools.cache_path", "tool results")

    async def get(
        self, key: str, result: ToolResult, patience_s: float, execute: Callable[[], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        """Return the result stored under `key`, otherwise execute the call and store its result if that is allowed.

        Args:
            key: equal for equal calls.
            result: the call's result, in which cache hits and waiting time are recorded.
            patience_s: seconds to wait for an equal call that is already running.
            execute: executes the call.

        Raises:
            UnscoredError: see `Cache.get`.
        """
        executed: list[ToolOutput] = []

        async def make() -> str | None:
            executed.append(await execute())
            return _encode(executed[0])

        entry = await self._cache.get(key, make, patience_s)
        result.queue_seconds += entry.waited_s
        if executed:
            return executed[0]
        result.metrics["cached"] = True
        return ToolOutput(*json.loads(entry.text))


@cache
def shared_cache(path: str | None) -> ResultCache:
    """Return the cache that all trajectories of this process share, one per file.

    Raises:
        ConfigError: the file cannot be used.
    """
    return ResultCache(path)


def _encode(output: ToolOutput) -> str | None:
    """Encode a result as JSON; None if it must not be stored, because it ends the episode or has images."""
    if output.answer is not None or output.images:
        return None
    return json.dumps([output.text, output.reward, output.metrics])
