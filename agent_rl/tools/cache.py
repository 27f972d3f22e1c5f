"""Results of reusable tools, kept so that equal calls are executed once.

In memory the least recently used is forgotten. In a file, results outlive the process and are shared with other
processes on this machine. It promises neither that two processes never execute one call twice, nor that a file forgets
anything: delete it when a tool's code or data changes.
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
    """Results by key; the argument is that of `Cache`."""

    def __init__(self, path: str | None = None) -> None:
        self._cache = Cache(path, "agent_rl.tools.cache_path", "tool results")

    async def get(
        self, key: str, result: ToolResult, patience_s: float, execute: Callable[[], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        """What is kept under `key`, or else what `execute` returns, which is kept when it may be.

        Args:
            key: the same for equal calls.
            result: the call's; cache hits and the seconds of waiting are noted in it.
            patience_s: seconds to wait for equal calls that are being executed.
            execute: executes the call.

        Raises:
            UnscoredError: see `Cache.get`.
        """
        executed: list[ToolOutput] = []

        async def make() -> str | None:
            executed.append(await execute())
            return _encode(executed[0])

        found = await self._cache.get(key, make, patience_s)
        result.queue_seconds += found.waited_s
        if executed:
            return executed[0]
        result.metrics["cached"] = True
        return ToolOutput(*json.loads(found.text))


@cache
def shared_cache(path: str | None) -> ResultCache:
    """The cache that all trajectories of this process share, one for each file.

    Raises:
        ConfigError: when the file cannot be used.
    """
    return ResultCache(path)


def _encode(output: ToolOutput) -> str | None:
    """JSON; None for a result that is not kept: one that ends the episode, or has images."""
    if output.answer is not None or output.images:
        return None
    return json.dumps([output.text, output.reward, output.metrics])
