"""Requests to servers that are loaded one after another: each waits until it is its server's turn.

The wait does not count against a request's limits on time. Who loads the servers looks where requests wait, loads one
and takes a turn for it, which ends when nothing has been asked of it for a moment.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

__all__ = ["TURNS", "Turns"]

POLL_S = 0.05
QUIET_S = 0.3
"""Seconds without a request after which a turn ends: what a reply leads to may be a further one."""


class Turns:
    """The turns of one process, for any number of event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: tuple[str, ...] = ()
        self._loaded = ""
        self._waiting: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._last = 0.0

    def manage(self, addresses: Collection[str]) -> None:
        """Let requests to these servers, `http://host:port`, wait for their turns; those to others do not wait."""
        self._servers = tuple(addresses)

    def waiting(self) -> dict[str, int]:
        """Requests that wait, by server."""
        with self._lock:
            return {address: count for address, count in self._waiting.items() if count}

    async def take(self, address: str) -> None:
        """The turn of a server that is loaded; it is over when this returns."""
        with self._lock:
            self._loaded, self._last = address, time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            with self._lock:
                if self._asked[address] or self._waiting[address] or time.monotonic() < self._last + QUIET_S:
                    continue
                self._loaded = ""
                return

    @asynccontextmanager
    async def turn(self, url: str) -> AsyncIterator[None]:
        """The time in which a request may be sent."""
        address = next((each for each in self._servers if url == each or url.startswith(f"{each}/")), None)
        if address is None:
            yield
            return
        await self._admitted(address)
        try:
            yield
        finally:
            with self._lock:
                self._asked[address] -= 1
                self._last = time.monotonic()

    async def _admitted(self, address: str) -> None:
        with self._lock:
            self._waiting[address] += 1
        try:
            while True:
                with self._lock:
                    if self._loaded == address:
                        self._asked[address] += 1
                        return
                await asyncio.sleep(POLL_S)
        finally:
            with self._lock:
                self._waiting[address] -= 1


TURNS = Turns()
"""Those of this process."""
