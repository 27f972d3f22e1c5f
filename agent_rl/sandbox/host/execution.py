"""Plain data: the outcome of running a program, and the isolation that a machine offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ExecutionStatus(str, Enum):
    """How an execution ended; only `OK` means that the program ran to its end with exit code 0.

    Attributes:
        OK: the program ran to its end.
        ERROR: an unhandled exception, a syntax error, or an exit code other than 0.
        TIMEOUT: the program exceeded its time limit, excluding time spent waiting for a core.
        MEMORY: an unhandled MemoryError.
        OUTPUT_LIMIT: the program wrote more than allowed.
        KILLED: killed by a signal, or by the sandbox for exceeding a limit such as disk space; `stderr` says why.
        REFUSED: the program was not run, because this machine offers no isolation and `unsafe=True` was not set.
        UNAVAILABLE: the sandbox itself failed, which a program cannot cause; the program was not judged.
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
        status: how the run ended.
        stdout: standard output, with undecodable bytes replaced; an output that is too long is truncated.
        stderr: standard error, decoded and truncated like `stdout`, plus a remark if the sandbox killed the program.
        exit_code: exit code as in Python's `subprocess`: the negated signal number if a signal killed the program, or
            None if the sandbox killed the program or did not start it.
        value: what the function called by `PythonSandbox.call` returned, as JSON text that the program could have
            forged; None if there is no such value.
        wall_s: seconds from the fork to the end of the process, excluding time spent waiting for a free place.
        own_s: `wall_s` without time spent waiting for a core, or the CPU seconds if these are more; a TIMEOUT with
            `own_s` below the limit does not prove that the program is too slow.
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
    """The isolation that a sandbox measured on this machine by attempting forbidden actions.

    Attributes:
        isolated: whether the isolation suffices for untrusted code.
        layers: the working layers.
        missing: layer -> why this layer does not work, and the remedy.
        acts: attempted action -> "denied" or "ALLOWED".
    """

    isolated: bool
    layers: tuple[str, ...]
    missing: Mapping[str, str]
    acts: Mapping[str, str]
