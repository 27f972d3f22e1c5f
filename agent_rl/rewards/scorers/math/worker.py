"""`compare`: runs math-verify in worker processes, so that a hang affects only one answer.

The processes serve all event loops and threads of this process. Results are cached, so that equal answers of a group
are compared once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent_rl.sandbox.host.places import in_a_place
from agent_rl.workers import WorkerDied, Workers, WorkerTimeout

__all__ = ["ANSWER_S", "compare"]

ANSWER_S = 5.0
"""Seconds of one comparison, those of waiting for a core not counted; after them the two count as different."""
_AT_ONCE = max(1, min(4, (os.cpu_count() or 2) // 2))
_KEPT = 16_384
_PROGRAM = Path(__file__).with_name("worker_program.py")


def compare(answer: str, truth: str) -> Future[bool]:
    """Whether math-verify finds two answers equal; a timeout after `ANSWER_S` counts as not equal.

    The future raises `UnscoredError` when no process can be started, or the machine is too busy.
    """
    return _pool.submit(answer, truth, ANSWER_S)


class _Pool:
    def __init__(self) -> None:
        self.workers = Workers("compares mathematical answers", [sys.executable, str(_PROGRAM)], kept=_AT_ONCE)
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def submit(self, *key: Any) -> Future[bool]:
        with self._lock:
            known = self._known.get(key)
            if known is not None and not (known.done() and known.exception()):
                self._known.move_to_end(key)
                return known
            future = self._known[key] = self._threads.submit(self._judge, *key)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return future

    def _judge(self, answer: str, truth: str, limit_s: float) -> bool:
        try:
            return in_a_place(lambda: self.workers.ask([answer, truth], limit_s)) is True
        except (WorkerTimeout, WorkerDied):
            return False

    def _forget(self) -> None:
        """Reset to empty, also in a forked child: threads and locks stay with its parent."""
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "agent_rl-math")  # it starts threads when they are needed
        self._known: OrderedDict[Any, Future[bool]] = OrderedDict()


_pool = _Pool()
