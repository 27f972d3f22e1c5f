"""The outcome of running a program, and what isolation a machine offers: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["Execution", "ExecutionStatus", "IsolationReport"]


class ExecutionStatus(str, Enum):
    """How an execution ended; only `OK` means that the program ran to its end with exit code 0.

    Attributes:
        OK: it ran to its end.
        ERROR: an unhandled exception, a syntax error, or an exit code other than 0.
        TIMEOUT: it ran past its limit in seconds, those of waiting for a core not counted.
        MEMORY: an unhandled MemoryError.
        OUTPUT_LIMIT: it wrote more than it may.
        KILLED: ended by a signal, or by the sandbox for its disk space, files or threads; `stderr` says why.
        REFUSED: not run, because this machine offers no isolation and `unsafe=True` was not given.
        UNAVAILABLE: the sandbox itself failed. This says nothing about the program, and no program can cause it.
    """

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Execution:
    """The outcome of one run.

    Attributes:
        status: how it ended.
        stdout: standard output, undecodable bytes replaced; the head of it when there was too much.
        stderr: the same for standard error, and the sandbox's own remark where it ended the program.
        exit_code: as Python's `subprocess` gives it: minus the signal's number for a signal; None if the sandbox
            ended the program or did not start it.
        value: from `PythonSandbox.call` only: what the function returned, as JSON text that the program could have
            forged.
        wall_s: seconds from the fork to the end; waiting for a free place is not in it.
        own_s: the same without those of waiting for a core, or its processor seconds where they are more; a TIMEOUT
            with less than the limit proves nothing.
    """

    status: ExecutionStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    wall_s: float = 0.0
    value: str | None = None
    own_s: float = 0.0


@dataclass(frozen=True)
class IsolationReport:
    """What a sandbox found out about the machine by trying forbidden acts on itself.

    Attributes:
        isolated: whether what holds is enough to run untrusted code.
        layers: the layers that hold.
        missing: layer -> why it does not hold and how to get it.
        acts: attempted act -> "denied" or "ALLOWED".
    """

    isolated: bool
    layers: tuple[str, ...]
    missing: Mapping[str, str]
    acts: Mapping[str, str]
