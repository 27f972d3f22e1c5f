"""`Rate`: spaces the requests to a server evenly, across all processes of a user on this node.

The time of the next request is stored as a number in a file in the temporary folder. A process locks the file while it
reads and increases the number. Processes with different TMPDIR variables do not share a rate.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import struct
import tempfile
import time
from functools import cache

from agent_rl.work.concurrency import PerLoop

_NUMBER = struct.Struct("d")


class Rate:
    """Limits the number of requests per second to each server.

    Args:
        per_s: requests per second.
    """

    def __init__(self, per_s: float) -> None:
        self._space_s = 1 / per_s
        self._turns = PerLoop(asyncio.Lock)

    async def turn(self, server: str) -> None:
        """Wait until a request may be sent to `server`, which is its host and port.

        Raises:
            OSError: the file in the temporary folder cannot be written.
        """
        async with self._turns.get():  # tasks reserve turns one by one, so that an early exit wastes at most one turn
            await asyncio.sleep(self._take(server) - time.monotonic())

    def _take(self, server: str) -> float:
        """Reserve the next turn; return its time on the `time.monotonic` clock, which a node's processes share."""
        name = hashlib.sha256(f"{server} {self._space_s} {_boot()}".encode()).hexdigest()[:16]
        path = f"{tempfile.gettempdir()}/agent_rl-{os.getuid()}-rate-{name}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = os.pread(file, _NUMBER.size, 0)
            turn: float = max(time.monotonic(), *_NUMBER.unpack(number or _NUMBER.pack(0)))
            os.pwrite(file, _NUMBER.pack(turn + self._space_s), 0)
        finally:
            os.close(file)
        return turn


@cache
def _boot() -> str:
    """Return the ID of the current boot; each boot uses another file, because the monotonic clock restarts at 0."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read()
