"""The trainer's side of one forked child: its input, its output, and how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.pool import Pool
from agent_rl.sandbox.host.supervisor import End, NotRun, Zygote
from agent_rl.sandbox.jail.protocol import MEMORY_SIGNAL, Op, Reason
from agent_rl.sandbox.jail.run_queue import PATIENCE

_READ_BYTES = 1 << 16
_READ_AFTER_S = 0.02  # a pipe's buffer has 64 KiB, so most programs end before their output must be read
_HANG_S = 30.0  # seconds from a deadline until an unresponsive zygote is killed
_TICK_S = 1.0  # _HANG_S is counted in ticks, so that a blocked event loop uses up little of it
_EXCESS = {
    Reason.DISK: "it wrote more to disk than allowed",
    Reason.FILES: "it created more files than allowed",
    Reason.THREADS: "it started more threads than allowed",
    Reason.MAPPINGS: "it mapped memory in more pieces than allowed",
    Reason.KILLED: "it disrupted its session's channel",
}


class Child:
    """A child of `zygote`, forked by the constructor. The caller must always call `close`.

    Args:
        pool: the open sandbox.
        zygote: the zygote that forks the child.
        order: the flags, the size of the code in bytes, the time limit in seconds, and the memory limit in bytes.
        channel: function that returns the descriptors of the two ends of the child's input, the child's end first.
        link: the child's end of a socket to another child, if any; this process closes it after sending it.

    Attributes:
        ended: future for the child's `End`; it raises `Lost` if the zygote dies first.
        channel: this process's end of the child's input.
        room: remaining bytes of output that the child may write.
        overflow: whether the child exceeded its output limit and is being killed.
    """

    def __init__(
        self,
        pool: Pool,
        zygote: Zygote,
        order: tuple[int, int, float, int],
        channel: Callable[[], tuple[int, int]],
        link: tuple[int, ...] = (),
    ) -> None:
        opened: list[int] = []
        try:
            for make in (channel, os.pipe, os.pipe):
                opened += make()
        except OSError as error:
            for descriptor in (*opened, *link):
                os.close(descriptor)
            raise NotRun(f"there are no file descriptors left: {error}") from None
        child_in, self.channel, out, child_out, err, child_err = opened
        for descriptor in (self.channel, out, err):
            os.set_blocking(descriptor, False)
        self._loop = pool.loop
        self._zygote = zygote
        self.room = 0
        self._parts: dict[int, list[bytes]] = {out: [], err: []}
        self._open = [out, err]
        self._attached = False
        self._timer = self._loop.call_later(_READ_AFTER_S, self._attach)
        self._hang: asyncio.TimerHandle | None = None
        self._waiting = False  # whether the child has yet to read its input
        self.overflow = False
        self._number, self.ended = zygote.fork(*order, (child_in, child_out, child_err, *link))

    def feed(self, data: bytes, limit_s: float, *, last: bool) -> None:
        """Write `data` to the channel without waiting; the rest follows as the child reads.

        Args:
            data: the bytes to write.
            limit_s: the child's time limit for processing `data`, in seconds.
            last: whether to close the channel afterwards, so that the child reads an end of file.
        """
        self._rest, self._last = memoryview(data), last
        self._patience_s = PATIENCE * limit_s + _HANG_S
        self._hang = self._loop.call_later(_TICK_S, self._tick)
        self._write()

    def order(self, op: Op, limit_s: float = 0.0) -> None:
        """Kill, pause or resume the child."""
        self._zygote.order(op, self._number, limit_s)

    def execution(self, end: End, limit_s: float) -> Execution:
        """Return the outcome of the child, which must have ended."""
        self.drain()
        out, err = self.take()
        status, exit_code, remark = _verdict(end, self.overflow, limit_s)
        if remark:
            err += f"{'' if not err or err.endswith(chr(10)) else chr(10)}sandbox: {remark}\n"
        return Execution(status, out, err, exit_code, end.wall_s, own_s=end.own_s)

    def drain(self) -> None:
        """Read the available output, without waiting."""
        for descriptor in tuple(self._open):
            while not self.overflow and self._read(descriptor) == _READ_BYTES:
                pass

    def take(self) -> tuple[str, str]:
        """Return the decoded standard output and standard error written since the last call to `take`."""
        out, err = (b"".join(parts).decode("utf-8", "replace") for parts in self._parts.values())
        for parts in self._parts.values():
            parts.clear()
        return out, err

    def stop_feeding(self) -> None:
        """Stop writing, and stop the timer for an unresponsive zygote."""
        if self._hang is not None:
            self._hang.cancel()
        self._stop_writing()

    def close(self) -> None:
        """Kill the child if it has not ended, and close this process's ends of its input and output."""
        self._timer.cancel()
        self.stop_feeding()
        self._zygote.forget(self._number)
        self.ended.cancel()
        for descriptor in tuple(self._open):
            self._release(descriptor)
        self._close_channel()

    def _tick(self) -> None:
        self._patience_s -= _TICK_S
        if self.ended.done():
            return
        if self._patience_s > 0:
            self._hang = self._loop.call_later(_TICK_S, self._tick)
        else:
            self._zygote.kill()

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self.channel, self._rest) :]
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.add_writer(self.channel, self._write)
            return
        except OSError:  # the child no longer reads its input
            pass
        self._stop_writing()
        if self._last:
            self._close_channel()

    def _stop_writing(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self.channel)

    def _close_channel(self) -> None:
        if self.channel >= 0:
            os.close(self.channel)
            self.channel = -1

    def _attach(self) -> None:
        self._attached = True
        for descriptor in self._open:
            self._loop.add_reader(descriptor, self._read, descriptor)

    def _read(self, descriptor: int) -> int:
        """Read once and return the number of bytes; close the descriptor at the end of the stream."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._release(descriptor)
        self._parts[descriptor].append(data[: self.room])
        if len(data) > self.room and not self.overflow:
            self.overflow = True
            self.order(Op.KILL)
        self.room -= min(len(data), self.room)
        return len(data)

    def _release(self, descriptor: int) -> None:
        if self._attached:
            self._loop.remove_reader(descriptor)
        self._open.remove(descriptor)
        os.close(descriptor)


def _verdict(end: End, overflow: bool, limit_s: float) -> tuple[ExecutionStatus, int | None, str]:
    """Return the status and the exit code of an ended child, and the sandbox's remark."""
    if end.reason == Reason.NOT_FORKED:
        return ExecutionStatus.UNAVAILABLE, None, f"no process could be started: {os.strerror(end.status)}"
    if end.reason == Reason.NOT_CONFINED:
        return ExecutionStatus.UNAVAILABLE, None, ""  # the child wrote the reason to stderr
    if overflow:
        return ExecutionStatus.OUTPUT_LIMIT, None, "the program was ended: it wrote more output than allowed"
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
        return ExecutionStatus.TIMEOUT, None, "the program was ended: it used more CPU time than allowed"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return ExecutionStatus.KILLED, exit_code, f"the program was ended by {name}"
