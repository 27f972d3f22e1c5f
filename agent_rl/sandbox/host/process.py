"""The trainer's end of one forked child: its pipes, what it wrote, and how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.jail.protocol import MEMORY_SIGNAL, Reason

__all__ = ["End", "Feed", "Output", "execution_of"]

_READ_BYTES = 1 << 16
_READ_AFTER_S = 0.02  # a pipe holds 64 KiB: most programs have ended before anybody needs to read


class End(NamedTuple):
    """How a child ended, as its zygote tells it."""

    reason: Reason
    status: int  # the kernel's wait status
    wall_s: float


class Output:
    """Standard output and standard error of one child, read as they come and bounded in bytes.

    `close` is due whatever happens. `child_ends` belong to the caller from the start.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        self._loop = loop
        self._room = max_bytes
        self.on_overflow: Callable[[], None] | None = None
        out, out_child = os.pipe()
        try:
            err, err_child = os.pipe()
        except OSError:
            os.close(out)
            os.close(out_child)
            raise
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        self.child_ends = (out_child, err_child)
        self._parts: dict[int, list[bytes]] = {out: [], err: []}
        self._open = [out, err]
        self._attached = False
        self._timer = loop.call_later(_READ_AFTER_S, self._attach)
        self.overflow = False

    def _attach(self) -> None:
        self._attached = True
        for descriptor in self._open:
            self._loop.add_reader(descriptor, self._read, descriptor)

    def _read(self, descriptor: int) -> None:
        """One read; at the end of the stream the descriptor is let go."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._release(descriptor)
        elif len(data) <= self._room:
            self._room -= len(data)
            self._parts[descriptor].append(data)
        else:
            self._parts[descriptor].append(data[: self._room])
            self._room = 0
            if not self.overflow:
                self.overflow = True
                if self.on_overflow is not None:
                    self.on_overflow()

    def drain(self) -> None:
        """Read what is there now, without waiting."""
        for descriptor in tuple(self._open):
            while not self.overflow:
                before = len(self._parts[descriptor])
                self._read(descriptor)
                parts = self._parts[descriptor]
                if len(parts) == before or len(parts[-1]) < _READ_BYTES:
                    break

    def take(self) -> tuple[str, str]:
        """What was written since the last time, decoded."""
        out, err = (b"".join(parts).decode("utf-8", "replace") for parts in self._parts.values())
        for parts in self._parts.values():
            parts.clear()
        return out, err

    def allow(self, max_bytes: int) -> None:
        """Allow `max_bytes` from now on."""
        self._room = max_bytes

    def close(self) -> None:
        """Close our ends."""
        self._timer.cancel()
        for descriptor in tuple(self._open):
            self._release(descriptor)

    def _release(self, descriptor: int) -> None:
        if self._attached:
            self._loop.remove_reader(descriptor)
        self._open.remove(descriptor)
        os.close(descriptor)


class Feed:
    """Writes `data` to a descriptor of ours without waiting; the rest follows as the other end reads.

    Args:
        last: close the descriptor after the data, so that the reader finds an end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, data: bytes, *, last: bool) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._rest = memoryview(data)
        self._last = last
        self._waiting = False
        self._write()

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._descriptor, self._rest) :]
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.add_writer(self._descriptor, self._write)
            return
        except OSError:  # nobody reads any more
            self._rest = self._rest[:0]
        self.close() if self._last else self.stop()

    def stop(self) -> None:
        """Write no more."""
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
            self._waiting = False

    def close(self) -> None:
        """Write no more, and close the descriptor."""
        self.stop()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_EXCESS = {
    Reason.DISK: "it wrote more to disk than it may",
    Reason.FILES: "it made more files than it may",
    Reason.THREADS: "it started more threads than it may",
    Reason.KILLED: "it disturbed the channel of its session",
}


def execution_of(end: End, output: Output, limit_s: float) -> Execution:
    """The outcome of a child that has ended; what it wrote has been read."""
    out, err = output.take()
    status, exit_code, remark = _verdict(end, output.overflow, limit_s)
    if remark:
        err += f"{'' if not err or err.endswith(chr(10)) else chr(10)}sandbox: {remark}\n"
    return Execution(status, out, err, exit_code, end.wall_s)


def _verdict(end: End, overflow: bool, limit_s: float) -> tuple[ExecutionStatus, int | None, str]:
    if end.reason == Reason.NOT_FORKED:
        return ExecutionStatus.UNAVAILABLE, None, f"no process could be started: {os.strerror(end.status)}"
    if end.reason == Reason.NOT_CONFINED:
        return ExecutionStatus.UNAVAILABLE, None, ""  # the child has said why
    if overflow:
        return ExecutionStatus.OUTPUT_LIMIT, None, "the program was ended: it wrote more output than it may"
    if end.reason == Reason.DEADLINE:
        return ExecutionStatus.TIMEOUT, None, f"the program was ended at its time limit of {limit_s:g} s"
    if end.reason in _EXCESS:
        return ExecutionStatus.KILLED, None, f"the program was ended: {_EXCESS[end.reason]}"
    exit_code = os.waitstatus_to_exitcode(end.status)
    if exit_code >= 0:
        return (ExecutionStatus.ERROR if exit_code else ExecutionStatus.OK), exit_code, ""
    if exit_code == -MEMORY_SIGNAL:
        return ExecutionStatus.MEMORY, 1, ""
    if exit_code == -signal.SIGXCPU:
        return ExecutionStatus.TIMEOUT, None, "the program was ended: it used more processor time than it may"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return ExecutionStatus.KILLED, exit_code, f"the program was ended by {name}"
