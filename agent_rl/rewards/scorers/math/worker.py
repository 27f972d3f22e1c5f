"""`compare`: runs math-verify in worker processes, so that a hang affects only one answer.

All event loops and threads of this process share the workers. Results are cached, because answers recur in a group.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

from agent_rl.sandbox import in_a_place
from agent_rl.sandbox.workers import WorkerDied, Workers, WorkerTimeout

ANSWER_S = 5.0
"""Time limit for each comparison in seconds, excluding waits for a core; slower comparisons return False."""
_PROGRAM = Path(__file__).with_name("worker_program.py")

workers = Workers(
    "compares mathematical answers", [sys.executable, str(_PROGRAM)], kept=max(1, min(4, (os.cpu_count() or 2) // 2))
)


@lru_cache(maxsize=16_384)
def compare(answer: str, truth: str, limit_s: float) -> bool:
    """Whether math-verify finds two answers equal within `limit_s` seconds; this blocks the calling thread.

    Raises:
        UnscoredError: a worker process cannot be started, or the machine is too busy.
    """
    try:
        return in_a_place(lambda: workers.ask([answer, truth], limit_s)) is True
    except (WorkerTimeout, WorkerDied):
        return False
