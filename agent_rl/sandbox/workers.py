"""`Workers`: processes that answer requests, for work on which this process cannot enforce a time limit.

A worker is a program that writes the line `"ready"`, and then one JSON line for each JSON line that it reads, until its
input ends. A worker starts on demand and waits for more requests; a worker that exceeds its time limit is killed. Each
concurrent request has its own worker. Workers inherit only the environment variables that a program needs to run, which
exclude API keys. Time spent waiting for a core does not count toward a request's limit, up to twenty times the limit.

If the process that started a worker is killed, the worker exits only when it reads its next line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.jail.run_queue import PATIENCE, run_queue

START_S = 60.0
"""Time limit for the start of a worker, in seconds."""
_READ_BYTES = 1 << 16
_LOOK_S = 0.005  # seconds between checks of a worker whose time seems to be up
_PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOME"),
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"),
)
"""Environment variables that locate programs, libraries and modules; none contains an API key."""


class WorkerTimeout(Exception):
    """A worker did not answer in time, and was killed."""


class WorkerDied(Exception):
    """A worker exited before it answered.

    Args:
        status: exit status as in `subprocess`, which is negative for a signal.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the process exited with status {status}")
        self.status = status


class Workers:
    """Processes that run one command for all threads of this process; a fork of this process starts its own workers.

    Args:
        what: verb phrase that completes the error message "the process that ... does not start".
        command: command that starts a worker.
        kept: maximum number of idle workers.
        idle_s: idle seconds after which a worker is not reused.
    """

    def __init__(self, what: str, command: Sequence[str], *, kept: int = 8, idle_s: float = 3600.0) -> None:
        self._what, self._command = what, [*command]
        self._kept, self._idle_s = kept, idle_s
        self.idle: deque[tuple[float, subprocess.Popen[bytes]]] = deque()  # needs no lock: append and pop are atomic
        _all.add(self)

    def ask(self, request: Any, timeout_s: float, may_be_kept: Callable[[Any], bool] | None = None) -> Any:
        """Send `request` and return its answer, both JSON data; block for at most `timeout_s` plus a worker's start-up.

        A worker that waits for a core may take longer.

        Args:
            request: the request.
            timeout_s: time limit for the worker's whole answer, in seconds.
            may_be_kept: function that decides from the answer whether the worker can be reused; None means always.

        Raises:
            WorkerTimeout: the worker did not answer in time.
            WorkerDied: the worker exited before it answered.
            UnscoredError: no worker can start, or the worker spent most of the time waiting for a core.
            ValueError: the request cannot be written as JSON.
        """
        data = json.dumps(request).encode() + b"\n"
        process = self._take() or self._start()
        try:
            answer = json.loads(_exchange(process, data, timeout_s))
        except BaseException:
            _end(process)
            raise
        if len(self.idle) < self._kept and (may_be_kept is None or may_be_kept(answer)):
            self.idle.append((time.monotonic(), process))
        else:
            _end(process)
        return answer

    def close(self) -> None:
        """Kill the idle workers."""
        while process := self._take():
            _end(process)

    def _take(self) -> subprocess.Popen[bytes] | None:
        while True:
            try:
                since, process = self.idle.pop()
            except IndexError:
                return None
            if process.poll() is None and time.monotonic() - since < self._idle_s:
                return process
            _end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment["OMP_NUM_THREADS"] = "1"
        problem = f"the process that {self._what} does not start"
        try:
            process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment, bufsize=0
            )
        except OSError as error:
            raise UnscoredError(f"{problem}: {error}") from error
        try:
            os.set_blocking(process.stdin.fileno(), False)  # type: ignore[union-attr]
            _exchange(process, b"", START_S)
        except (WorkerDied, WorkerTimeout) as error:
            _end(process)
            raise UnscoredError(f"{problem}: {error}") from error
        except BaseException:
            _end(process)
            raise
        return process


def _exchange(process: subprocess.Popen[bytes], data: bytes, timeout_s: float) -> bytes:
    """Write `data` and read one line of the answer, in whichever order the worker needs."""
    assert process.stdin is not None
    assert process.stdout is not None
    began, (ran_before, waited_before, _) = time.monotonic(), run_queue(process.pid)
    deadline, parts, rest = began + timeout_s, [], memoryview(data)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if rest:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while True:
            if time.monotonic() >= deadline:
                ran_s, waited_s, is_ready = run_queue(process.pid)
                elapsed_s = time.monotonic() - began
                own_s = max(ran_s - ran_before, 0.0 if is_ready else elapsed_s - waited_s + waited_before)
                if own_s >= timeout_s:
                    raise WorkerTimeout(f"no answer within {timeout_s:g} s")
                if elapsed_s >= PATIENCE * timeout_s:
                    raise UnscoredError(f"the machine is too busy: a process got {own_s:.3g} of its {timeout_s:g} s")
                deadline = time.monotonic() + max(_LOOK_S, timeout_s - own_s)
            for key, _ in selector.select(deadline - time.monotonic()):
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BrokenPipeError):  # a closed pipe also shows as the end of the output
                        rest = rest[os.write(key.fd, rest) :]
                        if rest:
                            continue
                    selector.unregister(process.stdin)
                    continue
                part = os.read(key.fd, _READ_BYTES)
                if not part:
                    raise WorkerDied(process.wait())
                parts.append(part)
                if part.endswith(b"\n"):
                    return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


_all: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for workers in list(_all):
        workers.close()


def _forget_all() -> None:
    """Forget the workers in a forked child, because the pipes belong to the parent."""
    for workers in list(_all):
        workers.idle.clear()


os.register_at_fork(after_in_child=_forget_all)
