"""`Places` limits how many programs, queries and comparisons all processes of a user run concurrently on this node.

A place is a lock on one byte of a file in the temporary folder; the kernel frees the place when its process exits.
Tasks in one process get places in the order of their requests. Between processes the order is random. Up to four
times per second, a process leaves a freed place to the first process that checks, so that no process keeps all places.

Processes with a different TMPDIR, or with a TMPDIR that does not support locks, have separate places.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import random
import struct
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from agent_rl.errors import UnscoredError

T = TypeVar("T")

PLACES = max(4, len(os.sched_getaffinity(0)))
"""Number of places on a node: the cores that this process may use, but at least 4."""
_KEEP_S = 0.25
_LOCK = struct.Struct("hhqqi4x")  # format of struct flock on 64-bit Linux


class Places:
    """Places for one event loop: an asynchronous context manager that many tasks may enter, like a semaphore.

    Args:
        count: the number of places.
        shared: whether all processes of this node share the places; otherwise the places belong to this object.
    """

    def __init__(self, count: int, *, shared: bool = True) -> None:
        self._file = -1
        with contextlib.suppress(OSError):  # if the folder is not writable, the places are not shared
            if shared:
                path = f"{tempfile.gettempdir()}/agent_rl-{os.getuid()}-places.lock"
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._free, self._taken = list(range(count)), list[int]()
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()
        self._left_one = time.monotonic()
        self._look_s = max(0.005, 0.0002 * count)  # rarer if there are more places: checking one takes a microsecond

    def take(self) -> bool:
        """Take a free place if possible, and return whether a place was taken."""
        place = next((place for place in reversed(self._free) if self._lock(place, fcntl.F_WRLCK)), None)
        if place is not None:
            self._free.remove(place)
            self._taken.append(place)
        return place is not None

    def pause_s(self) -> float:
        """Return the seconds until the next check for a place."""
        return self._look_s * random.uniform(0.5, 1.5)

    async def __aenter__(self) -> None:
        async with self._turn:
            while not self.take():
                self._freed.clear()
                timer = asyncio.get_running_loop().call_later(self.pause_s(), self._freed.set)
                try:
                    await self._freed.wait()
                finally:
                    timer.cancel()

    async def __aexit__(self, *_: object) -> None:
        self._free.append(place := self._taken.pop())
        self._lock(place, fcntl.F_UNLCK)
        if time.monotonic() - self._left_one < _KEEP_S:
            self._freed.set()
        else:
            self._left_one = time.monotonic()

    def close(self) -> None:
        """Free all places; a task that still holds a place may return it later."""
        self._lock(0, fcntl.F_UNLCK, size=0)  # unlocks all places (size 0), because forks may keep the file open
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self, place: int, kind: int, size: int = 1) -> bool:
        try:
            if self._file >= 0:
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, place, size, 0))
        except OSError as error:  # another process has the lock, or the file system has no locks
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True


def in_a_place(work: Callable[[], T]) -> T:
    """Wait for a place on this node, run `work` and return its result; retry once after an UnscoredError."""
    with contextlib.closing(Places(PLACES)) as places:
        while not places.take():
            time.sleep(places.pause_s())
        try:
            return work()
        except UnscoredError:
            return work()
