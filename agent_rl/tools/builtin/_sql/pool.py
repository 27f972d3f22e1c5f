"""The side of the tool: worker processes, started when needed and kept for the next request.

As many run as there are requests at once; `max_concurrency` of the tool's entry limits that. A worker ends when its
time is over, when it crashes, when its pipe closes, and by itself after a while without work, so after a
killed process its workers soon end too.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from signal import SIGALRM, SIGKILL
from typing import Any

from agent_rl.errors import ToolError, ToolTimeoutError, UnscoredError
from agent_rl.tools.builtin._sql.worker import IDLE_S, TOO_MUCH_MEMORY

__all__ = ["ask"]

MAX_IDLE = 8
"""Workers of one kind that are kept without work."""

_START = "import sys; sys.path.append(sys.argv[1]); from _sql.worker import main; main(sys.argv[2], int(sys.argv[3]))"
_PASSED_ON = ("LD_LIBRARY_PATH", "PATH")  # nothing else of the environment, where keys are


def ask(engine: str, memory_mb: int, request: dict[str, Any]) -> str:
    """The text that answers a request; blocks for at most its `timeout_s` and a worker's start.

    Raises:
        ToolError: for a query that fails, needs too long or too much memory, or crashes the engine.
        UnscoredError: when no worker can be started, or the database cannot be opened.
    """
    worker = _idle_worker(engine, memory_mb) or _Worker(engine, memory_mb)
    try:
        reply = worker.ask(request)
    except BaseException:
        worker.end()
        raise
    idle = _idle.setdefault((engine, memory_mb), deque())
    if len(idle) < MAX_IDLE and reply.get("error") != TOO_MUCH_MEMORY:
        idle.append(worker)
    else:
        worker.end()
    if "unusable" in reply:
        raise UnscoredError(f"the database {request['database']} cannot be opened: {reply['unusable']}")
    if "error" in reply:
        raise ToolError(reply["error"])
    return str(reply["text"])


class _Worker:
    def __init__(self, engine: str, memory_mb: int) -> None:
        command = [sys.executable, "-I", "-c", _START, str(Path(__file__).parents[1]), engine, str(memory_mb)]
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment)
        except OSError as error:
            raise UnscoredError(f"no process for {engine}: {error}") from error
        self.idle_since = 0.0

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        self.idle_since = time.monotonic()
        if line.endswith(b"\n"):
            reply: dict[str, str] = json.loads(line)
            return reply
        raise self._died(request["timeout_s"])

    def _died(self, timeout_s: float) -> Exception:
        code = self._process.wait()
        if code == -SIGALRM:
            hint = "make the query simpler, or filter before joining and sorting"
            return ToolTimeoutError(f"the query did not finish within {timeout_s:g} s; {hint}")
        if code < 0 and code != -SIGKILL:  # a crash, usually for lack of memory
            return ToolError(f"the query made the engine crash; {TOO_MUCH_MEMORY}, or is nested too deeply")
        return UnscoredError(f"the process of the database engine ended with status {code}")

    def end(self) -> None:
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


_idle: dict[tuple[str, int], deque[_Worker]] = {}  # a deque's append and pop need no lock


def _idle_worker(engine: str, memory_mb: int) -> _Worker | None:
    idle = _idle.get((engine, memory_mb), deque())
    while True:
        try:
            worker = idle.pop()
        except IndexError:
            return None
        if time.monotonic() - worker.idle_since < IDLE_S / 2:
            return worker
        worker.end()


@atexit.register
def _end_all() -> None:
    for workers in _idle.values():
        while workers:
            workers.pop().end()


os.register_at_fork(after_in_child=_idle.clear)  # the pipes are the parent's
