"""Verdicts that were given before, in memory and in a file: the same question and vote is not asked twice.

Of equal questions at the same time one is asked and the others wait for it; where it fails, it has failed for them too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agent_rl.concurrency import PerLoop
from agent_rl.errors import UnscoredError
from agent_rl.remote.disk_cache import DiskCache

__all__ = ["VerdictMemory", "memory_key"]

MAX_ENTRIES = 20_000


def memory_key(*parts: Any) -> str:
    """The same for equal JSON data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(slots=True)
class _Flight:
    """A question that is being asked."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    failure: UnscoredError | None = None


class VerdictMemory:
    """Texts by key; in memory the least recently used are forgotten.

    Args:
        path: of the file; None: memory only.
        key: the configuration key of the path, for errors.
        max_entries: in memory.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str | None, key: str, max_entries: int = MAX_ENTRIES) -> None:
        self._file = None if path is None else DiskCache(path, key=key, kind="verdicts")
        self._max_entries = max_entries
        self._entries: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._flights: PerLoop[dict[str, _Flight]] = PerLoop(dict)

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Wait until nobody else in this event loop asks for the same.

        Raises:
            UnscoredError: who asked meanwhile has failed.
        """
        flights = self._flights.get()
        flight = flights.setdefault(key, _Flight())
        flight.users += 1
        try:
            async with flight.lock:
                if flight.failure is not None:
                    raise UnscoredError(str(flight.failure))
                try:
                    yield
                except UnscoredError as error:
                    flight.failure = error
                    raise
        finally:
            flight.users -= 1
            if not flight.users:
                flights.pop(key, None)

    async def get(self, key: str) -> str | None:
        """What is kept, or None."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        kept = None if self._file is None else await asyncio.to_thread(self._file.get, key)
        if kept is not None:
            self._keep(key, kept)
        return kept

    async def put(self, key: str, text: str) -> None:
        """Keep a text."""
        self._keep(key, text)
        if self._file is not None:
            await asyncio.to_thread(self._file.put, key, text)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _keep(self, key: str, text: str) -> None:
        with self._lock:
            self._entries[key] = text
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
