"""`SandboxSession`: programs that run one after the other in one process, so that variables survive.

Between two runs the process is stopped, so that threads left behind by one use no processor time. A run that is ended
by the sandbox takes the process with it; the next one starts afresh and says so in its `stderr`.

What this does not promise: programs of one session are not protected from one another, and the end of a run is told
by the process itself. A program that forges it only ends its own run early.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.host import HANG_S, Host, check_limits
from agent_rl.sandbox.host.process import End, Feed, Output, execution_of
from agent_rl.sandbox.host.supervisor import Lost, NotRun, Zygote
from agent_rl.sandbox.jail.call import MAX_VALUE_BYTES
from agent_rl.sandbox.jail.protocol import CALL, CELL, CELL_END, FORK, NONCE_BYTES, SESSION, SHOW_LAST, Op

__all__ = ["SandboxSession"]

_MIB = 1 << 20
_READ_BYTES = 1 << 16
_END_S = 1.0  # from the end of the channel to the news of the end of the process


class SandboxSession:
    """Made by `PythonSandbox.session`; use it as an async context manager.

    Its process is started by the first run. A slot of the sandbox is taken only while something runs.
    """

    def __init__(self, host: Host, timeout_s: float, memory_mb: int) -> None:
        self._host = host
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._process: _Process | None = None
        self._lost: str | None = None
        self._turn = asyncio.Lock()
        self._open = False

    async def __aenter__(self) -> SandboxSession:
        self._host.check_loop()
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._process is not None:
            self._process.close()
            self._process = None

    async def run(
        self, code: str, stdin: str = "", timeout_s: float | None = None, *, show_last: bool = False
    ) -> Execution:
        """Run `code` with the variables of the runs before it.

        `sys.exit` ends the run and keeps the variables; so does an exception. Runs of one session wait for one another.

        Args:
            code: the program.
            stdin: what `input()` and `sys.stdin` read.
            timeout_s: wall-clock seconds; None: the session's.
            show_last: print the value of a final expression, as a notebook does.

        Returns:
            How it ended. Only wrong arguments and cancellation raise; a cancelled run loses the variables.
        """
        return await self._run(code, stdin.encode("utf-8", "surrogatepass"), SHOW_LAST * show_last, timeout_s)

    async def call(self, code: str, call: bytes, timeout_s: float | None = None) -> Execution:
        """Run `code`, then one of its functions; the execution has what it returned as `value`.

        Args:
            code: the program, whose `__name__` is not `__main__`.
            call: what to call, for `_call.value_of`.
            timeout_s: wall-clock seconds for both; None: the session's.
        """
        return await self._run(code, call, CALL, timeout_s)

    async def _run(self, code: str, data: bytes, flags: int, timeout_s: float | None) -> Execution:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        check_limits(limit_s, self._memory_mb)
        self._host.check_loop()
        source = code.encode("utf-8", "surrogatepass")
        nonce = os.urandom(NONCE_BYTES)
        cell = CELL.pack(nonce, flags, len(source), len(data)) + source + data
        async with self._turn, self._host.slots:
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
        fresh = self._process is None
        for _ in range(2):
            try:
                if self._process is None:
                    zygotes = self._host.zygotes
                    zygote = await zygotes.get(zygotes.kind_for(code))
                    self._process = _Process(self._host, zygote, limit_s, self._memory_mb * _MIB)
                else:
                    self._process.resume(limit_s)
                execution = await self._process.run(nonce, cell, limit_s)
            except NotRun as error:
                return error.execution
            except Lost as lost:
                self._lose("the sandbox's process died")
                if fresh and not lost.running:
                    self._lost = None
                    continue
                return Execution(ExecutionStatus.UNAVAILABLE, stderr="sandbox: its process died\n")
            except BaseException:
                self._lose("the run before was cancelled")
                raise
            if self._process.ended.done():
                self._lose(f"the run before ended with status {execution.status.value}")
            return execution
        return Execution(ExecutionStatus.UNAVAILABLE, stderr="sandbox: its process died twice\n")

    def _lose(self, why: str) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
            self._lost = why


class _Process:
    """The process of a session, from its fork to its end."""

    def __init__(self, host: Host, zygote: Zygote, limit_s: float, memory_bytes: int) -> None:
        self._host = host
        self._zygote = zygote
        try:
            self._channel, theirs = socket.socketpair()
            try:
                self._output = Output(host.loop, host.output_bytes)
            except OSError:
                self._channel.close()
                theirs.close()
                raise
        except OSError as error:
            raise NotRun(ExecutionStatus.UNAVAILABLE, f"there are no descriptors left: {error}") from None
        self._channel.setblocking(False)
        self._number, self.ended = zygote.fork(
            lambda number: FORK.pack(Op.FORK, number, SESSION, 0, limit_s, memory_bytes),
            (theirs.detach(), *self._output.child_ends),
        )
        self._output.on_overflow = lambda: zygote.order(Op.KILL, self._number)
        self._nonce, self._answer = b"", bytearray()
        self._closed = False
        self._answered: asyncio.Future[None] = host.loop.create_future()
        host.loop.add_reader(self._channel, self._read)

    def resume(self, limit_s: float) -> None:
        """Let the process run again, for at most `limit_s` seconds."""
        self._zygote.order(Op.RESUME, self._number, limit_s)

    async def run(self, nonce: bytes, cell: bytes, limit_s: float) -> Execution:
        """One cell; afterwards the process is paused, or `ended` is done.

        Raises:
            Lost: the zygote died.
        """
        loop = self._host.loop
        started = loop.time()
        self._nonce, self._answer, self._answered = nonce, bytearray(), loop.create_future()
        self._output.allow(self._host.output_bytes)
        feed = Feed(loop, self._channel.fileno(), cell, last=False)
        hang = loop.call_later(limit_s + HANG_S, self._zygote.kill)
        try:
            await asyncio.wait((self.ended, self._answered), return_when=asyncio.FIRST_COMPLETED)
            if self._closed:  # by the end of the process, which its zygote is about to tell, or by the program
                await asyncio.wait((self.ended,), timeout=_END_S)
            if not self.ended.done() and (self._answer[:NONCE_BYTES] != nonce or self._missing):
                self._zygote.order(Op.KILL, self._number)  # the program has meddled with the channel
                await asyncio.wait((self.ended,))
        finally:
            hang.cancel()
            feed.stop()
        self._output.drain()
        if self._output.overflow and not self.ended.done():
            await asyncio.wait((self.ended,))
        if self.ended.done():
            return self._last_execution(self.ended.result(), loop.time() - started, limit_s)
        self._zygote.order(Op.PAUSE, self._number)
        if loop.time() - started > limit_s:  # the zygote knows whether that was in time: pausing ends what was not
            await asyncio.wait((self.ended,), timeout=_END_S)
            if self.ended.done():
                return self._last_execution(self.ended.result(), loop.time() - started, limit_s)
        _, exit_code, out_of_memory, _ = CELL_END.unpack_from(self._answer)
        value = bytes(self._answer[CELL_END.size :]) or None
        status = ExecutionStatus.MEMORY if out_of_memory else ExecutionStatus.ERROR if exit_code else ExecutionStatus.OK
        return Execution(status, *self._output.take(), exit_code, loop.time() - started, value)

    def _last_execution(self, end: End, wall_s: float, limit_s: float) -> Execution:
        execution = replace(execution_of(end, self._output, limit_s), wall_s=wall_s)
        if execution.status != ExecutionStatus.OK:
            return execution
        text = f"{execution.stderr}sandbox: the program ended the session's process\n"
        return replace(execution, status=ExecutionStatus.ERROR, stderr=text)

    def _read(self) -> None:
        try:
            data = self._channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not self._answered.done():  # what comes after is of no use, however much it is
            self._answer += data
        if not data:
            self._closed = True
            self._host.loop.remove_reader(self._channel)
        forged = not self._nonce.startswith(self._answer[:NONCE_BYTES])
        if (not data or forged or self._missing <= 0) and not self._answered.done():
            self._answered.set_result(None)

    @property
    def _missing(self) -> int:
        """Bytes of the answer that are still to come; below 0: there are more than it may have."""
        size = CELL_END.size
        if len(self._answer) >= size:
            size += min(CELL_END.unpack_from(self._answer)[-1], MAX_VALUE_BYTES)
        return size - len(self._answer)

    def close(self) -> None:
        """Kill the process and let go of everything."""
        if not self.ended.done():
            self._zygote.forget(self._number)
            self.ended.cancel()
        self._host.loop.remove_reader(self._channel)
        self._channel.close()
        self._output.close()
