"""`ReplyCache`: replies by key, in memory and optionally in a SQLite file, so that equal requests are sent once.

Of equal requests at the same time one is sent and the others wait for its reply; its failure is theirs too. Processes
may share a file: two of them may send the same request at the same time, but none reads an incomplete entry.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from agent_rl.concurrency import PerLoop
from agent_rl.errors import UnscoredError
from agent_rl.remote.disk_cache import DiskCache

__all__ = ["ReplyCache", "reply_key"]

MAX_ENTRIES = 20_000


def reply_key(*parts: Any) -> str:
    """The same text for equal JSON data; secrets must not be part of it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class ReplyCache:
    """Texts by key; in memory the least recently used are dropped.

    Args:
        file: holds the texts for other processes and runs; None: memory only.
        max_entries: in memory.
    """

    def __init__(self, file: DiskCache | None = None, max_entries: int = MAX_ENTRIES) -> None:
        self._file, self._max_entries = file, max_entries
        self._entries: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._flights: PerLoop[dict[str, asyncio.Future[None]]] = PerLoop(dict)

    async def get(self, key: str, make: Callable[[], Awaitable[str]]) -> tuple[str, bool]:
        """The text of a key, and whether it was in the cache; if not, `make` makes it.

        Raises:
            UnscoredError: `make` failed, here or in an equal call that this one waited for.
        """
        flights = self._flights.get()
        while (kept := await self._recalled(key)) is None and key in flights:
            flight = flights[key]
            await asyncio.wait((flight,))
            if not flight.cancelled() and (failure := flight.exception()) is not None:
                raise UnscoredError(str(failure))
        if kept is not None:
            return kept, True
        flight = flights[key] = asyncio.get_running_loop().create_future()
        try:
            text = await make()
            self._keep(key, text)
            if self._file is not None:
                await asyncio.to_thread(self._file.put, key, text)
            return text, False
        except UnscoredError as error:
            flight.set_exception(error)
            flight.exception()  # marks it as seen, in case no call waits for it
            raise
        finally:
            del flights[key]
            flight.cancel()  # without a failure: who waits looks again

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    async def _recalled(self, key: str) -> str | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        kept = None if self._file is None else await asyncio.to_thread(self._file.get, key)
        if kept is not None:
            self._keep(key, kept)
        return kept

    def _keep(self, key: str, text: str) -> None:
        with self._lock:
            self._entries[key] = text
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
