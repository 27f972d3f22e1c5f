"""Right programs, queries and comparisons on a machine that is too busy: each is right or unscored, never wrong.

Everything runs on one core, so that the load is the same everywhere, with processes that only use the core up.
"""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import SCORERS, code, score_answer, score_now, sql_match
from agent_rl.rewards.scorers.math import worker
from agent_rl.sandbox.workers import WorkerTimeout
from agent_rl.tools.builtin._sql.pool import workers as sql_workers
from tests.support.busy import CORE, busy_core

pytestmark = pytest.mark.slow

WORK_S, CASE_S, CASES, PROGRAMS = 0.1, 0.4, 2, 6
RIGHT = f"import time\nend = time.process_time() + {WORK_S}\nwhile time.process_time() < end: pass\n"
PROGRAM = f"```python\n{RIGHT}print(int(input()) + 1)\n```"
TESTS = {"inputs": [f"{n}\n" for n in range(CASES)], "outputs": [f"{n + 1}\n" for n in range(CASES)]}


@pytest.fixture
def on_one_core():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORE})
    yield
    os.sched_setaffinity(0, cores)


async def test_right_programs_are_right_or_unscored(monkeypatch, on_one_core):
    monkeypatch.setattr(code, "CASE_S", CASE_S)
    monkeypatch.setattr(code, "TOTAL_S", CASE_S * CASES)
    scorer = SCORERS["code"].using(all_or_nothing=True)
    await score_answer(scorer, "```python\nprint(1)\n```", TESTS)  # the sandbox is started
    with busy_core(4):
        scores = (score_answer(scorer, PROGRAM, TESTS) for _ in range(PROGRAMS))
        scores = await asyncio.gather(*scores, return_exceptions=True)
    assert all(score == 1.0 or isinstance(score, UnscoredError) for score in scores), scores
    assert scores.count(1.0) >= PROGRAMS / 2, scores


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c {}) SELECT count(*) FROM c"
TABLES = {"tables": {"t": [{"a": 1}]}}


def test_a_query_has_its_seconds_however_long_that_takes(monkeypatch):
    long = ENDLESS.format("LIMIT 400000")
    assert score_now(SCORERS["sql_match"], long, long, TABLES) == 1.0
    for _, process in sql_workers(sql_match.MEMORY_MB).idle:
        os.sched_setaffinity(process.pid, {CORE})
    monkeypatch.setattr(sql_match, "QUERY_S", 0.3)
    with busy_core():
        assert score_now(SCORERS["sql_match"], long, long, TABLES) == 1.0
        assert score_now(SCORERS["sql_match"], ENDLESS.format(""), "SELECT 1", TABLES) == 0.0


@pytest.mark.parametrize("error", [UnscoredError("the machine is too busy"), WorkerTimeout("too slow")])
def test_a_comparison_that_was_not_decided_is_not_kept(monkeypatch, error):
    answer, strict = r"\boxed{\int_0^1 2x\,dx}", SCORERS["math"].using(strict=True)
    asked = []

    def fail(*_: object) -> None:
        asked.append(1)
        raise error

    worker.compare.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(worker.workers, "ask", fail)
        if isinstance(error, WorkerTimeout):  # its own seconds prove it: that is kept, for this limit
            patched.setattr(worker, "ANSWER_S", 1e-4)
            assert score_now(strict, answer, "1", {}) == score_now(strict, answer, "1", {}) == 0.0
            assert len(asked) == 1
        else:
            with pytest.raises(UnscoredError, match="too busy"):
                score_now(strict, answer, "1", {})
            assert len(asked) == 2
    assert score_now(strict, answer, "1", {}) == 1.0
    worker.workers.close()


def test_limits_of_math_verify_are_of_the_processor():
    """Stopped for longer than its own limit by the clock, a comparison is right nevertheless."""
    worker.compare.cache_clear()
    worker.workers.close()
    assert worker.compare(r"\sum_{k=1}^{3} k", "6", 60)
    ((_, process),) = worker.workers.idle
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(worker.compare, r"\int_0^1 2x\,dx", "1", 60)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(process.pid, signal.SIGCONT)
        assert waiting.result(60)
    worker.workers.close()
