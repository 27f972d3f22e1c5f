"""The protocol between the trainer and a zygote on their control socket.

The trainer sends one JSON packet with the `ZygoteSettings`, then one packet per order: FORK, KILL, RESUME or PAUSE.
FORK carries the descriptors for standard input (in a session, the channel), output and error, and for SERVE and TEST
also their socket. The zygote sends one JSON packet when it is ready, then packets of one or more RECORDs.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

PACKET_BYTES = 1 << 16

FORK = struct.Struct("<BQBIdQ")
"""op, number of the execution, flags, size of the code in bytes, time limit in seconds, memory limit in bytes."""

ORDER = struct.Struct("<BQd")
"""op, number of the execution, time limit in seconds (for RESUME)."""

RECORD = struct.Struct("<QBidd")
"""Number of the execution, reason, kernel's wait status (for STARTED: the pid), seconds from fork to end, own seconds.

Own seconds start with the time limit and exclude time spent waiting for a core; they are at least the CPU seconds.
"""

NONCE_BYTES = 16
CELL = struct.Struct(f"<{NONCE_BYTES}sBII")
"""A cell of a session: nonce, flags, size of the code, size of standard input; the code and the input follow."""
CELL_END = struct.Struct(f"<{NONCE_BYTES}sBB")
"""The end of a cell: nonce, exit code, whether memory ran out."""

SESSION, SHOW_LAST, CALL, SERVE, TEST = 1, 2, 4, 8, 16
"""Flags of an execution. With CALL, standard input is empty and the call follows the code.

A SERVE program answers the calls of its tests, and a TEST child runs the tests; a fourth descriptor connects them.
"""

SOFT_SIGNAL = signal.SIGRTMAX
"""Signal to a child at its deadline: the child flushes its output and dies. SIGKILL always follows."""
MEMORY_SIGNAL = signal.SIGRTMAX - 1
"""Signal with which a child kills itself after an unhandled MemoryError, because programs can use every exit code."""


class Op(IntEnum):
    """The trainer's orders."""

    FORK = 1
    KILL = 2
    PAUSE = 3
    RESUME = 4


class Reason(IntEnum):
    """Why a record was sent."""

    EXITED = 0  # the child exited by itself, or by a signal that the zygote did not send
    STARTED = 1  # the child has run for a while and is still running
    DEADLINE = 2
    KILLED = 3  # at the trainer's request
    DISK = 4
    FILES = 5
    THREADS = 6
    NOT_FORKED = 7
    NOT_CONFINED = 8
    MAPPINGS = 9


@dataclass(frozen=True)
class ZygoteSettings:
    """Settings of a zygote. Sizes are in bytes.

    Attributes:
        unsafe: whether to fork programs even if the machine does not offer enough isolation.
        scratch_parent: parent of the scratch root.
        package_files: name -> path of the importable packages outside of the standard library.
        readable: paths that programs can read.
        file_bytes: size limit for each file.
        disk_bytes: limit on the disk space of one program's files.
        preload: modules to import before the first fork.
        layers: layers of confinement to use; if None, the zygote probes the machine and reports the layers in its
            greeting.
    """

    unsafe: bool
    scratch_parent: str
    package_files: dict[str, str]
    readable: Sequence[str]
    file_bytes: int
    disk_bytes: int
    preload: Sequence[str] = ()
    layers: Sequence[str] | None = None
