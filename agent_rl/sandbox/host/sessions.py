"""`SandboxSession`: programs that run one after the other in one process, so that variables survive.

Between two runs the process is stopped, so that threads that one leaves behind use no processor time. A run that is
ended by the sandbox takes the process with it; the next one starts with no variables and says so in its `stderr`.

What this does not promise: programs of one session are not protected from one another, and the end of a run is
reported by the process itself. A program that forges it only ends its own run early. Where this process's event loop
stands still at the deadline of a run that has answered, nobody knows when, the answer counts as in time.
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

__all__ = ["SandboxSession"]

_MIB = 1 << 20
_READ_BYTES = 1 << 16
_MARGIN_S = 0.05  # by which a zygote's clock for a run is ahead of ours
_STALL_S = 0.1  # by which the event loop is late at a deadline
_END_S = 2.0  # from the end of the channel to the report of the end of the process


class SandboxSession:
    """Made by `PythonSandbox.session`; use it as an async context manager.

    Its process is started by the first run. A place of the sandbox is taken only while something runs.
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
        """Run `code` with the variables of the runs before it.

        `sys.exit` ends the run and keeps the variables; so does an exception. Runs of one session wait for one another.

        Args:
            code: the program.
            stdin: what `input()` and `sys.stdin` read.
            timeout_s: seconds, as for `PythonSandbox.run`; None: the session's.
            show_last: print the value of a final expression, as a notebook does.

        Returns:
            How it ended. Only wrong arguments and cancellation raise; a cancelled run loses the variables.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        check_limits(limit_s, self._memory_mb)
        self._pool.check_loop()
        source, data = (text.encode("utf-8", "surrogatepass") for text in (code, stdin))
        nonce = os.urandom(NONCE_BYTES)
        cell = CELL.pack(nonce, SHOW_LAST * show_last, len(source), len(data)) + source + data
        async with self._turn, self._pool.slots:
            if not self._open:
                raise RuntimeError("SandboxSession.run outside of `async with`")
            if self._process is not None and self._process.ended.done():
                self._lose("its process ended between two runs")
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
                self._close()  # no variables were in it
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
            self._lose("the run before was cancelled")
            raise
        if self._process is not None and self._process.ended.done():
            self._lose(f"the run before ended with status {execution.status.value}")
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
        self._late_s = 0.0  # of the event loop at the deadline
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self.channel, self._read_channel)

    async def run(self, nonce: bytes, cell: bytes, limit_s: float) -> Execution:
        """One cell; afterwards the process is paused, or `ended` is done.

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
            if self._channel_ended:  # by the end of the process, which its zygote is about to report, or by the program
                await asyncio.wait((self.ended,), timeout=_END_S)
            if not self.ended.done() and not self._is_answer:
                self.order(Op.KILL)  # the program has meddled with the channel
                await asyncio.wait((self.ended,))
        finally:
            self.stop_feeding()
            alarm.cancel()
        self.drain()
        if self.overflow and not self.ended.done():
            await asyncio.wait((self.ended,))
        waited_s = max(0.0, self._zygote.waited_s(self._number) - waited_before)  # before the time: rather too little
        own_s = self._loop.time() - started - waited_s
        if not self.ended.done():
            self.order(Op.PAUSE)
            if own_s > limit_s - _MARGIN_S:  # the zygote knows: pausing ends what is late
                await asyncio.wait((self.ended,), timeout=_END_S)
        wall_s = self._loop.time() - started
        if self.ended.done() and not self._may_have_been_in_time():
            return self._last_execution(wall_s, limit_s)
        _, exit_code, out_of_memory = CELL_END.unpack(self._answer)
        status = ExecutionStatus.MEMORY if out_of_memory else ExecutionStatus.ERROR if exit_code else ExecutionStatus.OK
        return Execution(status, *self.take(), exit_code, wall_s, own_s=own_s)

    def close(self) -> None:
        """Kill it if it has not ended, and close our ends."""
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
        """Whether an answer is there, of a process that was ended while this event loop stood still."""
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
        if not self._answered.done():  # what comes after is of no use, however much it is
            self._answer += data
        if not data:
            self._channel_ended = True
            self._loop.remove_reader(self.channel)
        forged = not self._nonce.startswith(self._answer[:NONCE_BYTES])
        if (not data or forged or len(self._answer) >= CELL_END.size) and not self._answered.done():
            self._answered.set_result(None)

    @property
    def _is_answer(self) -> bool:
        return len(self._answer) == CELL_END.size and self._answer.startswith(self._nonce)


def _socket_pair() -> tuple[int, int]:
    one, other = socket.socketpair()
    return one.detach(), other.detach()
