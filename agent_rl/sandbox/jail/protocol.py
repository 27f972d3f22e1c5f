"""The protocol between the trainer and a zygote on their control socket.

Trainer to zygote: one JSON packet, the `ZygoteSettings`; then one packet for each order: FORK (with the descriptors for
standard input, output and error, or for a session its channel, output and error; for SERVE and TEST also their socket),
KILL, RESUME and PAUSE. Zygote to trainer: one JSON packet when it is ready, then packets of one or more RECORDs.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "CALL",
    "CELL",
    "CELL_END",
    "FORK",
    "MEMORY_SIGNAL",
    "NONCE_BYTES",
    "ORDER",
    "PACKET_BYTES",
    "RECORD",
    "SERVE",
    "SESSION",
    "SHOW_LAST",
    "SOFT_SIGNAL",
    "Op",
    "Reason",
    "ZygoteSettings",
]

PACKET_BYTES = 1 << 16

FORK = struct.Struct("<BQBIdQ")
"""op, number of the execution, flags, bytes of code, limit in seconds, limit in bytes of memory."""

ORDER = struct.Struct("<BQd")
"""op, number of the execution, limit in seconds (for RESUME)."""

RECORD = struct.Struct("<QBidd")
"""Number of the execution, reason, the kernel's wait status (STARTED: the pid), seconds from fork to end, own seconds.

Own seconds count from the start of the limit, without those of waiting for a core; at least the processor's.
"""

NONCE_BYTES = 16
CELL = struct.Struct(f"<{NONCE_BYTES}sBII")
"""A cell of a session: nonce, flags, bytes of code, bytes of standard input; then both."""
CELL_END = struct.Struct(f"<{NONCE_BYTES}sBB")
"""The end of a cell: nonce, exit code, whether memory ran out."""

SESSION, SHOW_LAST, CALL, SERVE, TEST = 1, 2, 4, 8, 16
"""Flags. With CALL a program's standard input is empty, and in its place is what to call after the code.

SERVE is a program that then answers the calls of its tests, TEST are the tests: a fourth descriptor connects them.
"""

SOFT_SIGNAL = signal.SIGRTMAX
"""At the deadline: write out what is buffered, then die. SIGKILL follows in any case."""
MEMORY_SIGNAL = signal.SIGRTMAX - 1
"""The child kills itself with this after an unhandled MemoryError: every exit code is the program's."""


class Op(IntEnum):
    """What the trainer orders."""

    FORK = 1
    KILL = 2
    PAUSE = 3
    RESUME = 4


class Reason(IntEnum):
    """Why a record was sent."""

    EXITED = 0  # by itself, or by a signal that the zygote did not send
    STARTED = 1  # no end: it has been running for a while
    DEADLINE = 2
    KILLED = 3  # on request
    DISK = 4
    FILES = 5
    THREADS = 6
    NOT_FORKED = 7
    NOT_CONFINED = 8
    MAPPINGS = 9


@dataclass(frozen=True)
class ZygoteSettings:
    """What a zygote needs to know. Sizes are in bytes.

    Attributes:
        unsafe: fork programs even where the machine does not offer enough isolation.
        scratch_parent: the directory for the scratch root.
        package_files: name -> path of what can be imported beside the standard library.
        readable: the paths that programs can read.
        file_bytes: size of any one file.
        disk_bytes: what the files of one program may take on disk.
        preload: modules to import before the first fork.
        layers: layers of confinement to use; None: find out, and report them in the greeting.
    """

    unsafe: bool
    scratch_parent: str
    package_files: dict[str, str]
    readable: Sequence[str]
    file_bytes: int
    disk_bytes: int
    preload: Sequence[str] = ()
    layers: Sequence[str] | None = None
