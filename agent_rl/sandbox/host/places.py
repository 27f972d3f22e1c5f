"""`Places`: how many programs, queries and comparisons run at a time, over all processes of a user on this node.

A place is a lock on one byte of a file in the temporary folder. The kernel frees it with the process that has it,
whatever ended that. Whoever finds no free place looks again every few milliseconds. In one process the places go to
those who wait in the order in which they came; between processes chance decides, and no process keeps them all: four
times a second one that becomes free is left to whoever looks first.

What this does not promise: processes with another TMPDIR, and users who cannot lock files in theirs, have places of
their own.
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
from collections.abc import Iterator

__all__ = ["PLACES", "Places", "place_of_node"]

PLACES = max(4, len(os.sched_getaffinity(0)))
"""Of a node: its cores that this process may use, but at least 4."""
_LOOK_S = 0.005  # until the next look, and at least as many times this for each place, since a look costs as much:
_LOOK_S_EACH = 0.0002
_KEEP_S = 0.25
_TAKEN = (errno.EAGAIN, errno.EACCES)
_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux


class Places:
    """The places for one event loop; an asynchronous context manager that many tasks may enter, as a semaphore.

    Args:
        count: how many there are.
        shared: with the other processes of this node; otherwise they are this object's alone.
    """

    def __init__(self, count: int, *, shared: bool = True) -> None:
        self._file = _open() if shared else -1
        self._free = list(range(count))
        self._taken: list[int] = []
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._left = time.monotonic()
        self._look_s = max(_LOOK_S, _LOOK_S_EACH * count)

    def take(self) -> bool:
        """Take a place, if one is free."""
        for place in reversed(self._free):  # the last that was given back is the likeliest to be free
            if self._lock(place, fcntl.F_WRLCK):
                self._free.remove(place)
                self._taken.append(place)
                return True
        return False

    def give_back(self) -> None:
        """Free a place that was taken."""
        place = self._taken.pop()
        self._lock(place, fcntl.F_UNLCK)
        self._free.append(place)

    def pause_s(self) -> float:
        """Seconds until the next look."""
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
        self.give_back()
        now = time.monotonic()
        if self._file < 0 or now - self._left < _KEEP_S:
            self._freed.set()
        else:
            self._left = now

    def close(self) -> None:
        """Free all places; what still has one may give it back later."""
        self._lock(0, fcntl.F_UNLCK, 0)  # a fork of this process has the file as well, so that closing it may not do
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self, place: int, kind: int, size: int = 1) -> bool:
        """Lock or unlock `size` places (0: all from there); False: another one has it."""
        if self._file < 0:
            return True
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, place, size, 0))
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            os.close(self._file)  # a file system without locks
            self._file = -1
        return True


@contextlib.contextmanager
def place_of_node() -> Iterator[None]:
    """A place for a thread, which is blocked until one is free."""
    places = Places(PLACES)
    try:
        while not places.take():
            time.sleep(places.pause_s())
        yield
    finally:
        places.close()


def _open() -> int:
    """The file; -1 where there can be none."""
    try:
        path = f"{tempfile.gettempdir()}/agent_rl-{os.getuid()}-places.lock"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1
