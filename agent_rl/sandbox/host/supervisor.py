"""Starts a zygote and exchanges messages with it, from one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.jail.protocol import FORK, ORDER, PACKET_BYTES, RECORD, Op, Reason, ZygoteSettings
from agent_rl.sandbox.jail.run_queue import run_queue

_START_S = 60.0
_TICK_S = 1.0
_LACKING = (errno.EAGAIN, errno.ENOMEM)
_STOP_S = 5.0
_POLL_S = 0.005
_SEND_AGAIN_S = 0.01
# No fork handlers are registered, because a zygote has no threads to repair and children seed random numbers cheaply.
_BOOT = """
import os
import sys
register_at_fork, os.register_at_fork = os.register_at_fork, lambda **_: None
sys.path[:] = [entry for entry in sys.path if entry]
import types
package = types.ModuleType("agent_rl_sandbox")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package
from agent_rl_sandbox.zygote import main
os.register_at_fork = register_at_fork
main(int(sys.argv[2]))
"""
# `-I` is not used, because it would ignore PYTHONHASHSEED; the environment has no other variables for Python.
_COMMAND = (sys.executable, "-s", "-S", "-X", "utf8", "-c", _BOOT, str(Path(__file__).parents[1] / "jail"))
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "LD_BIND_NOW": "1",  # otherwise each child has to look up every C function that it calls
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

logger = logging.getLogger(__name__)


class End(NamedTuple):
    """The end of a child, as its zygote reports it."""

    reason: Reason
    status: int  # the kernel's wait status
    wall_s: float
    own_s: float


class NotRun(Exception):
    """No child could be started.

    Args:
        text: the reason.
        status: the execution's status.
        may_pass: whether the cause may be temporary, because another program may hold the resource that ran out.

    Attributes:
        execution: the outcome to return.
    """

    def __init__(
        self, text: str, status: ExecutionStatus = ExecutionStatus.UNAVAILABLE, *, may_pass: bool = False
    ) -> None:
        super().__init__(text)
        self.may_pass = may_pass
        self.execution = Execution(status, stderr=f"sandbox: not run, because {text}\n")


class Lost(Exception):
    """The zygote died before its child ended.

    Args:
        running: whether the child is known to have run.
    """

    def __init__(self, running: bool) -> None:
        super().__init__("the sandbox's process died")
        self.running = running


class Zygote:
    """A running zygote and its children; create one with `start`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._process, self.pid = process, process.pid
        self._control = control
        self._numbers = 0
        self._orders: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._ends: dict[int, asyncio.Future[End]] = {}
        self._running: dict[int, int] = {}  # number -> process id of each child that has run for a while
        self.alive = True

    @classmethod
    async def start(cls, settings: ZygoteSettings) -> tuple[Zygote, Any]:
        """Start a zygote, and return it with its greeting when it is ready.

        Raises:
            NotRun: the zygote cannot start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - returns as soon as the exec has begun
                    [*_COMMAND, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    env=_ENVIRONMENT,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                problem = f"the sandbox's process could not be started: {error}"
                raise NotRun(problem, may_pass=error.errno in _LACKING) from None
        zygote = cls(process, ours)
        try:
            ours.setblocking(False)
            await zygote._loop.sock_sendall(ours, json.dumps(asdict(settings)).encode())
            answer = await _first_packet(zygote._loop, ours)
            if not answer:
                raise NotRun(f"the sandbox's process exited during startup:\n{zygote._read_stderr()}")
            greeting = json.loads(answer)
            if "error" in greeting:
                problem = f"the sandbox's process could not start:\n{greeting['error']}"
                raise NotRun(problem, may_pass=greeting["errno"] in _LACKING)
        except BaseException as error:
            zygote.alive = False
            words = zygote._read_stderr()
            await zygote.stop()
            if isinstance(error, (OSError, asyncio.TimeoutError)):
                raise NotRun(f"the sandbox's process did not start: {error!r}\n{words}") from None
            raise
        zygote._loop.add_reader(ours, zygote._read)
        return zygote, greeting

    @property
    def load(self) -> int:
        """Number of children that have not ended."""
        return len(self._ends)

    def fork(
        self, flags: int, code_bytes: int, limit_s: float, memory_bytes: int, descriptors: tuple[int, ...]
    ) -> tuple[int, asyncio.Future[End]]:
        """Request a child with `descriptors`, which this process closes after sending them.

        Returns:
            The child's number, and a future that resolves when the child ends, or raises `Lost` if the zygote dies.
        """
        self._numbers += 1
        self._ends[self._numbers] = future = self._loop.create_future()
        order = FORK.pack(Op.FORK, self._numbers, flags, code_bytes, limit_s, memory_bytes)
        self._orders.append((order, descriptors))
        if len(self._orders) == 1:
            self._loop.call_soon(self._send)  # sent after the input is written, so that the child need not wait for it
        return self._numbers, future

    def order(self, op: Op, number: int, limit_s: float = 0.0) -> None:
        """Kill, pause or resume a child, unless it has ended."""
        if number in self._ends:
            self._orders.append((ORDER.pack(op, number, limit_s), ()))
            if len(self._orders) == 1:
                self._send()

    def waited_s(self, number: int) -> float:
        """Return the number of seconds a child has waited for a core, or 0 for a new child."""
        return run_queue(self._running[number])[1] if number in self._running else 0.0

    def kill(self) -> None:
        """Kill the zygote, which does not answer."""
        logger.error("the sandbox's process %d does not answer and is killed", self.pid)
        self._process.kill()

    def forget(self, number: int) -> None:
        """Kill a child if it has not ended, and drop its future."""
        self.order(Op.KILL, number)
        self._ends.pop(number, None)

    def _send(self) -> None:
        """Send the waiting orders; if the zygote cannot take an order now, retry a little later."""
        while self._orders:
            order, descriptors = self._orders[0]
            try:
                if descriptors:
                    socket.send_fds(self._control, (order,), descriptors)
                else:
                    self._control.send(order)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ETOOMANYREFS):  # too many packets or descriptors are waiting
                    self._loop.call_later(_SEND_AGAIN_S, self._send)
                else:  # the zygote is gone, which `_read` notices
                    self._drop_orders()
                return
            self._close_first()

    def _close_first(self) -> None:
        for descriptor in self._orders.popleft()[1]:
            os.close(descriptor)

    def _drop_orders(self) -> None:
        while self._orders:
            self._close_first()

    def _read(self) -> None:
        try:
            data = self._control.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            logger.error("the sandbox's process %d died. %s", self.pid, self._read_stderr())
            self._died()
            return
        for number, reason, status, wall_s, own_s in RECORD.iter_unpack(data):
            if reason == Reason.STARTED:
                self._running[number] = status
                continue
            self._running.pop(number, None)
            future = self._ends.pop(number, None)
            if future is not None and not future.done():
                future.set_result(End(Reason(reason), status, wall_s, own_s))

    def _died(self) -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._drop_orders()
        for number, future in self._ends.items():
            if not future.done():
                future.set_exception(Lost(number in self._running))
                future.exception()  # marks the exception as retrieved, so that asyncio does not log it
        self._ends.clear()

    def _read_stderr(self) -> str:
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self._process.stderr.fileno(), PACKET_BYTES).decode("utf-8", "replace")
        return ""

    async def stop(self) -> None:
        """Stop the zygote and everything that it started."""
        if self.alive:
            self._died()
        self._control.close()
        with anyio.move_on_after(_STOP_S):
            while self._process.poll() is None:  # noqa: ASYNC110 - polls, as no thread can start at interpreter exit
                await asyncio.sleep(_POLL_S)
        self._process.kill()  # has no effect if the process has exited
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


async def _first_packet(loop: asyncio.AbstractEventLoop, control: socket.socket) -> bytes:
    """Return a zygote's first packet; a blocked event loop uses up only one tick of the time limit.

    Raises:
        TimeoutError: the zygote sends nothing.
    """
    packet = asyncio.ensure_future(loop.sock_recv(control, PACKET_BYTES))
    try:
        for _ in range(int(_START_S / _TICK_S)):
            await asyncio.wait((packet,), timeout=_TICK_S)
            if packet.done():
                return packet.result()
        raise asyncio.TimeoutError
    finally:
        packet.cancel()
