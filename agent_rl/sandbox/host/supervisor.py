"""Starting a zygote and talking to it, from one event loop and without threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.process import End
from agent_rl.sandbox.jail.protocol import ORDER, PACKET_BYTES, RECORD, Op, Reason

__all__ = ["Lost", "NotRun", "Settings", "Zygote"]

_DESCRIPTORS = struct.Struct("3i")
_START_S = 60.0
_STOP_S = 5.0
# What is imported with the zygote itself registers nothing to be done in each fork: it has no threads to mend, and a
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


class NotRun(Exception):
    """Nothing was started; `execution` is the answer to whoever wanted it."""

    def __init__(self, status: ExecutionStatus, text: str) -> None:
        super().__init__(text)
        self.execution = Execution(status, stderr=f"sandbox: not run, because {text}\n")


class Lost(Exception):
    """The zygote died before the child's end.

    Args:
        running: whether the child is known to have run.
    """

    def __init__(self, running: bool) -> None:
        super().__init__("the sandbox's process died")
        self.running = running


@dataclass(frozen=True)
class Settings:
    """What a zygote needs to know, as it is sent to it."""

    unsafe: bool
    scratch_parent: str
    package_files: Mapping[str, str]
    readable: tuple[str, ...]
    file_bytes: int
    open_files: int
    disk_bytes: int
    max_files: int
    max_threads: int


class Zygote:
    """One running zygote and what it has forked; `start` makes it."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._numbers = 0
        self._orders: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._ends: dict[int, asyncio.Future[End]] = {}
        self._running: set[int] = set()
        self._blocked = False
        self.alive = True

    @classmethod
    async def start(cls, preload: tuple[str, ...], settings: Settings, layers: list[str] | None) -> tuple[Zygote, Any]:
        """A zygote that is ready, and its greeting.

        Args:
            preload: modules to import.
            settings: what it may do.
            layers: layers of confinement to use; None: find out, and tell in the greeting.

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
                raise _unavailable(f"the sandbox's process could not be started: {error}") from None
        zygote = cls(process, ours)
        try:
            ours.setblocking(False)
            orders = {**asdict(settings), "preload": preload, "layers": layers}
            await zygote._loop.sock_sendall(ours, json.dumps(orders).encode())
            answer = await asyncio.wait_for(zygote._loop.sock_recv(ours, PACKET_BYTES), _START_S)
            if not answer:
                raise _unavailable(f"the sandbox's process ended while it started:\n{zygote._last_words()}")
            greeting = json.loads(answer)
            if "error" in greeting:
                raise _unavailable(f"the sandbox's process could not start:\n{greeting['error']}")
        except BaseException as error:
            zygote.alive = False
            words = zygote._last_words()
            await zygote.stop()
            if isinstance(error, (OSError, asyncio.TimeoutError)):
                raise _unavailable(f"the sandbox's process did not start: {error!r}\n{words}") from None
            raise
        zygote._loop.add_reader(ours, zygote._read)
        return zygote, greeting

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def load(self) -> int:
        """Children that have not ended."""
        return len(self._ends)

    def fork(self, pack: Callable[[int], bytes], descriptors: tuple[int, ...]) -> tuple[int, asyncio.Future[End]]:
        """Order a child, which gets `descriptors`; they are closed here once they have been sent.

        Returns:
            The child's number and how it will end; `Lost` is raised there when the zygote dies first.
        """
        self._numbers += 1
        future: asyncio.Future[End] = self._loop.create_future()
        self._ends[self._numbers] = future
        self._order(pack(self._numbers), descriptors)
        return self._numbers, future

    def order(self, op: Op, number: int, limit_s: float = 0.0) -> None:
        """Kill, pause or resume a child; nothing happens when it has ended."""
        if number in self._ends:
            self._order(ORDER.pack(op, number, limit_s), ())

    def kill(self) -> None:
        """Kill the zygote itself, because it does not answer."""
        logger.error("the sandbox's process %d does not answer and is killed", self._process.pid)
        self._process.kill()

    def forget(self, number: int) -> None:
        """Kill a child in whose end nobody is interested any more."""
        self.order(Op.KILL, number)
        self._ends.pop(number, None)

    def _order(self, order: bytes, descriptors: tuple[int, ...]) -> None:
        self._orders.append((order, descriptors))
        if len(self._orders) == 1:
            self._send()

    def _send(self) -> None:
        """Send what is waiting, in order; where the socket is full, go on when it is not."""
        while self._orders:
            order, descriptors = self._orders[0]
            try:
                if descriptors:
                    rights = _DESCRIPTORS.pack(*descriptors)
                    self._control.sendmsg((order,), ((socket.SOL_SOCKET, socket.SCM_RIGHTS, rights),))
                else:
                    self._control.send(order)
            except BlockingIOError:
                self._blocked = True
                self._loop.add_writer(self._control, self._send)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # too many descriptors on their way
                    self._loop.call_later(0.01, self._send)
                    return
                break  # it is gone, which `_read` finds out
            self._orders.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        if self._orders or self._blocked:
            self._stop_sending()

    def _stop_sending(self) -> None:
        if self._blocked:
            self._blocked = False
            self._loop.remove_writer(self._control)
        for _, descriptors in self._orders:
            for descriptor in descriptors:
                os.close(descriptor)
        self._orders.clear()

    def _read(self) -> None:
        try:
            data = self._control.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            logger.error("the sandbox's process %d died. %s", self._process.pid, self._last_words())
            self._died()
            return
        for number, reason, status, wall_s in RECORD.iter_unpack(data):
            if reason == Reason.STARTED:
                self._running.add(number)
                continue
            self._running.discard(number)
            future = self._ends.pop(number, None)
            if future is not None and not future.done():
                future.set_result(End(Reason(reason), status, wall_s))

    def _died(self) -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._stop_sending()
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
        """Let it end, with everything that it started."""
        if self.alive:
            self._died()
        self._control.close()
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._gone(), _STOP_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    async def _gone(self) -> None:
        delay_s = 0.002
        while self._process.poll() is None:
            await asyncio.sleep(delay_s)
            delay_s = min(0.1, delay_s * 2)


def _unavailable(text: str) -> NotRun:
    return NotRun(ExecutionStatus.UNAVAILABLE, text)
