"""Right programs, queries and comparisons on a machine that is too busy: each is right or unscored, never wrong.

Everything runs on one core, so that the load is the same everywhere: the workers, which are processes of their own as
verl's reward workers are, their programs, and those that only use the core up.
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import SCORERS, score_now, sql_match
from agent_rl.rewards.scorers.math import worker
from agent_rl.tools.builtin._sql.pool import workers as sql_workers
from agent_rl.workers import WorkerTimeout
from tests.busy import CORE, busy_core
from tests.profiles import FULL

pytestmark = pytest.mark.slow

CASES, CASE_S, WORK_S = 2, 0.4, 0.1
WORKER = f"""
import asyncio, json, os, sys
os.sched_setaffinity(0, {{{CORE}}})
from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import SCORERS, code, score_answer
code.CASE_S, code.TOTAL_S = {CASE_S}, {CASE_S * CASES}
RIGHT = "import time\\nend = time.process_time() + {WORK_S}\\nwhile time.process_time() < end: pass\\n"
PROGRAM = "```python\\n" + RIGHT + "print(int(input()) + 1)\\n```"
TESTS = {{"inputs": [f"{{n}}\\n" for n in range({CASES})], "outputs": [f"{{n + 1}}\\n" for n in range({CASES})]}}

async def score():
    try:
        return await score_answer(SCORERS["code_all"], PROGRAM, TESTS, {{}})
    except UnscoredError as error:
        return str(error)

async def main():
    await score_answer(SCORERS["code_all"], "```python\\nprint(1)\\n```", TESTS, {{}})
    print("ready", flush=True)
    count = int(sys.stdin.readline())
    print(json.dumps(await asyncio.gather(*(score() for _ in range(count)))), flush=True)

asyncio.run(main())
"""
# Workers, programs of each, and processes that use the core up.
LOADS = [(2, 3, 1)] + [(1, 12, 3), (4, 12, 3), (8, 12, 3)] * FULL


@pytest.mark.bounded
@pytest.mark.parametrize(("count", "programs", "spinners"), LOADS)
def test_right_programs_are_right_or_unscored(count, programs, spinners):
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", WORKER], stdin=pipe, stdout=pipe, text=True))
            for _ in range(count)
        ]
        assert [process.stdout.readline() for process in started] == ["ready\n"] * count
        with busy_core(spinners):
            for process in started:
                process.stdin.write(f"{programs}\n")
                process.stdin.flush()
            scores = [score for process in started for score in json.loads(process.stdout.readline())]
    assert len(scores) == count * programs
    assert all(score == 1.0 or isinstance(score, str) for score in scores), scores
    assert sum(score == 1.0 for score in scores) >= len(scores) / 2, scores


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
    answer, strict = r"\boxed{\int_0^1 2x\,dx}", SCORERS["math_strict"]
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
