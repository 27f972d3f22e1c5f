"""`compare`: runs math-verify in worker processes, so that a hang affects only one answer.

The processes start on first use and serve all event loops and threads of this process. One that exceeds its time limit
is killed; the next comparison starts another one. Results are cached, so that equal answers of a group are compared
once.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from agent_rl.errors import UnscoredError

__all__ = ["ANSWER_S", "compare"]

ANSWER_S = 5.0
"""Wall-clock seconds of one comparison; after a timeout the two count as different."""
START_S = 60.0
_WORKERS = max(1, min(4, (os.cpu_count() or 2) // 2))
_KEPT = 16_384
_PROGRAM = Path(__file__).with_name("worker_program.py")


def compare(answer: str, truth: str) -> Future[bool]:
    """Whether math-verify finds two answers equal; a timeout after `ANSWER_S` counts as not equal.

    The future raises `UnscoredError` when no process can be started.
    """
    return _pool.submit(answer, truth)


class _Pool:
    _children: list[subprocess.Popen[bytes]]

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def submit(self, answer: str, truth: str) -> Future[bool]:
        with self._lock:
            known = self._known.get((answer, truth))
            if known is not None and not (known.done() and known.exception()):
                self._known.move_to_end((answer, truth))
                return known
            future = self._known[answer, truth] = self._threads.submit(self._judge, answer, truth)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return future

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            _end(child)

    def _judge(self, answer: str, truth: str) -> bool:
        child: subprocess.Popen[bytes] | None = getattr(self._own, "child", None)
        if child is not None and child.poll() is not None:
            _end(child)
            child = None
        if child is None:
            child = self._own.child = self._start()
        line = b""
        with contextlib.suppress(OSError):  # it ended
            assert child.stdin is not None
            child.stdin.write(json.dumps([answer, truth]).encode() + b"\n")
            child.stdin.flush()
            line = _line(child, ANSWER_S)
        if not line:
            _end(child)
        return line == b"true"

    def _start(self) -> subprocess.Popen[bytes]:
        problem = "the process that compares mathematical answers does not start"
        try:
            child = subprocess.Popen(
                [sys.executable, str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise UnscoredError(f"{problem}: {error}") from error
        if _line(child, START_S) != b"ready":
            _end(child)
            raise UnscoredError(f"{problem} (exit status {child.returncode})")
        with self._lock:
            self._children = [other for other in self._children if other.poll() is None] + [child]
        return child

    def _forget(self) -> None:
        """Reset to empty, also in a forked child: the processes belong to its parent."""
        self._lock, self._own = threading.Lock(), threading.local()
        self._threads = ThreadPoolExecutor(_WORKERS, "agent_rl-math")  # it starts threads when they are needed
        self._children = []
        self._known: OrderedDict[tuple[str, str], Future[bool]] = OrderedDict()


def _line(child: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The next line of a process that writes whole ones, without its end; empty after a timeout."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline().strip() if selector.select(timeout_s) else b""


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # unwritten input
                stream.close()


_pool = _Pool()
