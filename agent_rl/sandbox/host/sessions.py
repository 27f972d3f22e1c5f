"""`SandboxSession` runs programs one after another in one process, so that variables survive.

Between runs, the process is paused, so that leftover threads use no CPU time. If the sandbox kills a run, the
process dies too; the next run starts without variables and reports the loss in its `stderr`.

Programs in one session are not protected from one another, and the process itself reports the end of a run; a program
that forges this report only ends its own run early. If this process's event loop is blocked at the deadline, an answer
that has arrived by the time it resumes is treated as on time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.pool import KILLER, LOST, Pool, check_limits
from agent_rl.sandbox.host.process import Child
from agent_rl.sandbox.host.supervisor import Lost, Zygote
from agent_rl.sandbox.jail.protocol import CELL, CELL_END, NONCE_BYTES, SESSION, SHOW_LAST, Op, Reason

_MIB = 1 << 20
_READ_BYTES = 1 << 16
_MARGIN_S = 0.05  # seconds by which a zygote's clock for a run is ahead of this process's clock
_STALL_S = 0.1  # if the event loop is this late at a deadline, it was blocked
_END_S = 2.0  # maximum time from the closing of the channel to the report that the process has ended


class SandboxSession:
    """A session from `PythonSandbox.session`; use it as an async context manager.

    The first run starts the session's process. A session takes one of the sandbox's places only during a run.
    """

    def __init__(self, pool: Pool, timeout_s: float, memory_mb: int) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._process: _Process | None = None
        self._lost: str | None = None
        self._turn = asyncio.Lock()
        self._open = False

    async def __aenter__(self) -> SandboxSession:
        self._pool.check_loop()
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        self._close()

    async def run(
        self, code: str, stdin: str = "", timeout_s: float | None = None, *, show_last: bool = False
    ) -> Execution:
        """Run `code` with the variables of earlier runs.

        `sys.exit` or an exception ends the run and keeps the variables. Runs in one session wait for one another.

        Args:
            code: the program.
            stdin: text that `input()` and `sys.stdin` read.
            timeout_s: time limit in seconds, see `PythonSandbox.run`; None means the session's limit.
            show_last: whether to print the value of a final expression, as a notebook does.

        Returns:
            The outcome. Only wrong arguments and cancellation raise exceptions; a cancelled run loses the variables.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        check_limits(limit_s, self._memory_mb)
        self._pool.check_loop()
        source, data = (text.encode("utf-8", "surrogatepass") for text in (code, stdin))
        nonce = os.urandom(NONCE_BYTES)
        cell = CELL.pack(nonce, SHOW_LAST * show_last, len(source), len(data)) + source + data
        async with self._turn, self._pool.slots:
            if not self._open:
                raise RuntimeError("SandboxSession.run is used outside of `async with`")
            if self._process is not None and self._process.ended.done():
                self._lose("its process ended between runs")
            lost, self._lost = self._lost, None
            execution = await self._run_cell(nonce, cell, code, limit_s)
        if lost is not None:
            execution = replace(execution, stderr=f"sandbox: the previous state was lost: {lost}\n{execution.stderr}")
        return execution

    async def _run_cell(self, nonce: bytes, cell: bytes, code: str, limit_s: float) -> Execution:
        async def begin(zygote: Zygote) -> Execution:
            self._process = _Process(self._pool, zygote, limit_s, self._memory_mb * _MIB)
            try:
                return await self._process.run(nonce, cell, limit_s)
            except Lost:
                self._close()  # the process had no variables yet, so none are lost
                raise

        try:
            if self._process is None:
                execution = await self._pool.attempt(self._pool.kind_for(code), begin)
            else:
                self._process.order(Op.RESUME, limit_s)
                execution = await self._process.run(nonce, cell, limit_s)
        except Lost as lost:
            self._lose("the sandbox's process died")
            return KILLER if lost.running and not self._pool.isolated else LOST
        except BaseException:
            self._lose("the previous run was cancelled")
            raise
        if self._process is not None and self._process.ended.done():
            self._lose(f"the previous run ended with status {execution.status.value}")
        return execution

    def _lose(self, why: str) -> None:
        if self._process is not None:
            self._close()
            self._lost = why

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _Process(Child):
    """The process of a session, from its fork to its end."""

    def __init__(self, pool: Pool, zygote: Zygote, limit_s: float, memory_bytes: int) -> None:
        super().__init__(pool, zygote, (SESSION, 0, limit_s, memory_bytes), _socket_pair)
        self._output_bytes = pool.output_bytes
        self._nonce, self._answer = b"", bytearray()
        self._channel_ended = False
        self._late_s = 0.0  # how late the event loop was at the deadline
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self.channel, self._read_channel)

    async def run(self, nonce: bytes, cell: bytes, limit_s: float) -> Execution:
        """Run one cell; when this method returns, the process is paused or has ended.

        Raises:
            Lost: the zygote died.
        """
        started, waited_before = self._loop.time(), self._zygote.waited_s(self._number)
        self._late_s = 0.0
        alarm = self._loop.call_at(started + limit_s, self._note_lateness, started + limit_s)
        self._nonce, self._answer, self._answered = nonce, bytearray(), self._loop.create_future()
        self.room = self._output_bytes
        self.feed(cell, limit_s, last=False)
        try:
            await asyncio.wait((self.ended, self._answered), return_when=asyncio.FIRST_COMPLETED)
            if self._channel_ended:  # the channel's end may mean that the process ended, which its zygote will report
                await asyncio.wait((self.ended,), timeout=_END_S)
            if not self.ended.done() and not self._is_answer:
                self.order(Op.KILL)  # kills the program, because it wrote to the channel itself
                await asyncio.wait((self.ended,))
        finally:
            self.stop_feeding()
            alarm.cancel()
        self.drain()
        if self.overflow and not self.ended.done():
            await asyncio.wait((self.ended,))
        waited_s = max(
            0.0, self._zygote.waited_s(self._number) - waited_before
        )  # read before the clock, so that waited_s is never too high
        own_s = self._loop.time() - started - waited_s
        if not self.ended.done():
            self.order(Op.PAUSE)
            if own_s > limit_s - _MARGIN_S:  # the zygote kills a late run when asked to pause it
                await asyncio.wait((self.ended,), timeout=_END_S)
        wall_s = self._loop.time() - started
        if self.ended.done() and not self._may_have_been_in_time():
            return self._last_execution(wall_s, limit_s)
        _, exit_code, out_of_memory = CELL_END.unpack(self._answer)
        status = ExecutionStatus.MEMORY if out_of_memory else ExecutionStatus.ERROR if exit_code else ExecutionStatus.OK
        return Execution(status, *self.take(), exit_code, wall_s, own_s=own_s)

    def close(self) -> None:
        """Kill the session's process if it has not ended, and close this process's ends of its channel and output."""
        self._loop.remove_reader(self.channel)
        super().close()

    def _last_execution(self, wall_s: float, limit_s: float) -> Execution:
        execution = replace(self.execution(self.ended.result(), limit_s), wall_s=wall_s)
        if execution.status != ExecutionStatus.OK:
            return execution
        text = f"{execution.stderr}sandbox: the program ended the session's process\n"
        return replace(execution, status=ExecutionStatus.ERROR, stderr=text)

    def _note_lateness(self, due: float) -> None:
        self._late_s = self._loop.time() - due

    def _may_have_been_in_time(self) -> bool:
        """Whether the process answered but was killed at its deadline while this event loop was blocked."""
        if self._late_s < _STALL_S or not self._is_answer or self.ended.exception() is not None:
            return False
        return self.ended.result().reason == Reason.DEADLINE

    def _read_channel(self) -> None:
        try:
            data = os.read(self.channel, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not self._answered.done():  # later data is ignored
            self._answer += data
        if not data:
            self._channel_ended = True
            self._loop.remove_reader(self.channel)
        is_forged = not self._nonce.startswith(self._answer[:NONCE_BYTES])
        if (not data or is_forged or len(self._answer) >= CELL_END.size) and not self._answered.done():
            self._answered.set_result(None)

    @property
    def _is_answer(self) -> bool:
        return len(self._answer) == CELL_END.size and self._answer.startswith(self._nonce)


def _socket_pair() -> tuple[int, int]:
    left, right = socket.socketpair()
    return left.detach(), right.detach()
