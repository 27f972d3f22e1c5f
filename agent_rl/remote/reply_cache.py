"""`ReplyCache`: replies by key, in memory and optionally in a SQLite file, so that equal requests are sent once.

Of equal concurrent requests one is sent and the others wait for its reply or failure. Processes may share a file: two
of them may send the same request at the same time, but none reads an incomplete entry.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from agent_rl.concurrency import PerLoop, in_thread
from agent_rl.errors import UnscoredError
from agent_rl.remote.disk_cache import DiskCache

__all__ = ["MAX_BYTES", "ReplyCache", "TextStore", "reply_key"]

MAX_ENTRIES = 20_000
MAX_BYTES = 64 * 2**20


def reply_key(*parts: Any) -> str:
    """The same text for equal JSON data; secrets must not be part of it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class TextStore:
    """Texts by key: the most recently used in memory, and all of them in a file where there is one.

    Args:
        file: holds the texts for other processes and runs; None: memory only.
        max_entries: in memory.
        max_bytes: in memory, one per character; a longer text is not stored.
    """

    def __init__(self, file: DiskCache | None, max_entries: int, max_bytes: int) -> None:
        self._file, self._max_entries, self._max_bytes = file, max_entries, max_bytes
        self._entries: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def recall(self, key: str) -> str | None:
        """The text, if it is in memory."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    async def get(self, key: str) -> str | None:
        """The text, from memory or from the file."""
        text = self.recall(key)
        if text is None and self._file is not None:
            text = await in_thread(self._file.get, key)
            if text is not None:
                self._keep(key, text)
        return text

    async def put(self, key: str, text: str) -> None:
        """Store a text."""
        if len(text) <= self._max_bytes:
            self._keep(key, text)
            if self._file is not None:
                await in_thread(self._file.put, key, text)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _keep(self, key: str, text: str) -> None:
        with self._lock:
            self._bytes += len(text) - len(self._entries.pop(key, ""))
            self._entries[key] = text
            while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= len(dropped)


class ReplyCache:
    """Sends equal requests once; the arguments are those of `TextStore`."""

    def __init__(
        self, file: DiskCache | None = None, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._store = TextStore(file, max_entries, max_bytes)
        self._flights: PerLoop[dict[str, asyncio.Future[None]]] = PerLoop(dict)

    async def get(self, key: str, make: Callable[[], Awaitable[str]]) -> tuple[str, bool]:
        """The text of a key, and whether it was in the cache; if not, `make` makes it.

        Raises:
            UnscoredError: `make` failed, here or in an equal call that this one waited for.
        """
        flights = self._flights.get()
        while (kept := await self._store.get(key)) is None and key in flights:
            flight = flights[key]
            await asyncio.wait((flight,))
            if not flight.cancelled() and (failure := flight.exception()) is not None:
                raise UnscoredError(str(failure))
        if kept is not None:
            return kept, True
        flight = flights[key] = asyncio.get_running_loop().create_future()
        try:
            text = await make()
            await self._store.put(key, text)
            return text, False
        except UnscoredError as error:
            flight.set_exception(error)
            flight.exception()  # marks it as seen, in case no call waits for it
            raise
        finally:
            del flights[key]
            flight.cancel()  # after a success: the waiting calls read the cache again

    def close(self) -> None:
        """Close the file."""
        self._store.close()
