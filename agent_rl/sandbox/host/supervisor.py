"""Starting a zygote and talking to it, from one event loop."""

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

__all__ = ["End", "Lost", "NotRun", "Zygote"]

_START_S = 60.0
_TICK_S = 1.0
_LACKING = (errno.EAGAIN, errno.ENOMEM)
_STOP_S = 5.0
_POLL_S = 0.005
_SEND_AGAIN_S = 0.01
# What is imported with the zygote itself registers nothing to be done in each fork: it has no threads to repair, and a
# child seeds its random numbers by a shorter way.
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
# Not `-I`: it would ignore PYTHONHASHSEED, and this environment has nothing else to ignore.
_COMMAND = (sys.executable, "-s", "-S", "-X", "utf8", "-c", _BOOT, str(Path(__file__).parents[1] / "jail"))
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "LD_BIND_NOW": "1",  # or each child looks up each C function that it calls, and writes down where it is
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


logger = logging.getLogger(__name__)


class End(NamedTuple):
    """How a child ended, as its zygote reports it."""

    reason: Reason
    status: int  # the kernel's wait status
    wall_s: float
    own_s: float


class NotRun(Exception):
    """No child was started.

    Args:
        text: why.
        status: of the execution.
        may_pass: whether the machine lacks something now that a program may have taken.

    Attributes:
        execution: the outcome to return for it.
    """

    def __init__(
        self, text: str, status: ExecutionStatus = ExecutionStatus.UNAVAILABLE, *, may_pass: bool = False
    ) -> None:
        super().__init__(text)
        self.may_pass = may_pass
        self.execution = Execution(status, stderr=f"sandbox: not run, because {text}\n")


class Lost(Exception):
    """The zygote died before the child's end.

    Args:
        running: whether the child is known to have run.
    """

    def __init__(self, running: bool) -> None:
        super().__init__("the sandbox's process died")
        self.running = running


class Zygote:
    """One running zygote and what it has forked; `start` makes it."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._process, self.pid = process, process.pid
        self._control = control
        self._numbers = 0
        self._orders: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._ends: dict[int, asyncio.Future[End]] = {}
        self._running: dict[int, int] = {}  # the process ids of those that have been running for a while
        self.alive = True

    @classmethod
    async def start(cls, settings: ZygoteSettings) -> tuple[Zygote, Any]:
        """A zygote that is ready, and its greeting.

        Raises:
            NotRun: it could not be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - it returns when the exec is under way
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
                raise NotRun(f"the sandbox's process ended while it started:\n{zygote._last_words()}")
            greeting = json.loads(answer)
            if "error" in greeting:
                problem = f"the sandbox's process could not start:\n{greeting['error']}"
                raise NotRun(problem, may_pass=greeting["errno"] in _LACKING)
        except BaseException as error:
            zygote.alive = False
            words = zygote._last_words()
            await zygote.stop()
            if isinstance(error, (OSError, asyncio.TimeoutError)):
                raise NotRun(f"the sandbox's process did not start: {error!r}\n{words}") from None
            raise
        zygote._loop.add_reader(ours, zygote._read)
        return zygote, greeting

    @property
    def load(self) -> int:
        """Children that have not ended."""
        return len(self._ends)

    def fork(
        self, flags: int, code_bytes: int, limit_s: float, memory_bytes: int, descriptors: tuple[int, ...]
    ) -> tuple[int, asyncio.Future[End]]:
        """Request a child with `descriptors`, which are closed here once they have been sent.

        Returns:
            The child's number and how it will end; `Lost` is raised there when the zygote dies first.
        """
        self._numbers += 1
        self._ends[self._numbers] = future = self._loop.create_future()
        order = FORK.pack(Op.FORK, self._numbers, flags, code_bytes, limit_s, memory_bytes)
        self._orders.append((order, descriptors))
        if len(self._orders) == 1:
            self._loop.call_soon(self._send)  # once its input is there, so that the child does not wait for us
        return self._numbers, future

    def order(self, op: Op, number: int, limit_s: float = 0.0) -> None:
        """Kill, pause or resume a child; nothing happens when it has ended."""
        if number in self._ends:
            self._orders.append((ORDER.pack(op, number, limit_s), ()))
            if len(self._orders) == 1:
                self._send()

    def waited_s(self, number: int) -> float:
        """Seconds that a child has waited for a core; 0 while it is new."""
        return run_queue(self._running[number])[1] if number in self._running else 0.0

    def kill(self) -> None:
        """Kill the zygote itself, because it does not answer."""
        logger.error("the sandbox's process %d does not answer and is killed", self.pid)
        self._process.kill()

    def forget(self, number: int) -> None:
        """Kill a child, if it has not ended; nobody waits for its end any more."""
        self.order(Op.KILL, number)
        self._ends.pop(number, None)

    def _send(self) -> None:
        """Send what is waiting, in order; what the zygote does not take now is sent again a little later."""
        while self._orders:
            order, descriptors = self._orders[0]
            try:
                if descriptors:
                    socket.send_fds(self._control, (order,), descriptors)
                else:
                    self._control.send(order)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ETOOMANYREFS):  # full, or too many descriptors on their way
                    self._loop.call_later(_SEND_AGAIN_S, self._send)
                else:  # it is gone, which `_read` finds out
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
            logger.error("the sandbox's process %d died. %s", self.pid, self._last_words())
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
                future.exception()  # seen, in case nobody waits
        self._ends.clear()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self._process.stderr.fileno(), PACKET_BYTES).decode("utf-8", "replace")
        return ""

    async def stop(self) -> None:
        """Stop it with everything that it started."""
        if self.alive:
            self._died()
        self._control.close()
        with anyio.move_on_after(_STOP_S):
            while self._process.poll() is None:  # noqa: ASYNC110 - no thread can start while the interpreter ends
                await asyncio.sleep(_POLL_S)
        self._process.kill()  # nothing where it has ended
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


async def _first_packet(loop: asyncio.AbstractEventLoop, control: socket.socket) -> bytes:
    """What a zygote says first. A time in which the event loop stands still counts as one tick.

    Raises:
        TimeoutError: it says nothing.
    """
    said = asyncio.ensure_future(loop.sock_recv(control, PACKET_BYTES))
    try:
        for _ in range(int(_START_S / _TICK_S)):
            await asyncio.wait((said,), timeout=_TICK_S)
            if said.done():
                return said.result()
        raise asyncio.TimeoutError
    finally:
        said.cancel()
