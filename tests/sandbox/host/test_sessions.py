"""Sessions: what survives from one run to the next, and what happens when it does not."""

import asyncio
import os
from pathlib import Path

import pytest

from agent_rl.sandbox import PythonSandbox
from tests.support.descriptors import descriptors, left_open
from tests.support.processes import until

pytestmark = pytest.mark.slow


def stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().split()


def test_variables_functions_and_files_survive(box):
    *_, last = box.cells(
        "import math\nx = 2", "def f(y):\n    return x * y", "open('file', 'w').write('text')", "x = 5",
        "print(f(math.floor(3.5)), open('file').read())",
    )  # fmt: skip
    assert (last.stdout, last.status, last.exit_code) == ("15 text\n", "ok", 0)


def test_the_last_expression_and_input(box):
    shown, value, read = box.cells("21 * 2", "_", "input()", show_last=True, stdin="line\n")
    assert (shown.stdout, value.stdout, read.stdout) == ("42\n", "42\n", "'line'\n")


def test_errors_keep_the_state(box):
    _, error, left, syntax, memory, last = box.cells(
        "x = 1\ndef f():\n    return x / 0",
        "f()",
        "import sys; sys.exit(3)",
        "x = =",
        "y = bytearray(10**10)",
        "print(x)",
    )
    assert (error.status, error.exit_code) == ("error", 1)
    assert error.stderr.startswith(
        'Traceback (most recent call last):\n  File "<cell 2>", line 1, in <module>\n    f()\n'
    )
    assert '  File "<cell 1>", line 3, in f\n    return x / 0\n' in error.stderr
    assert (left.status, left.exit_code, left.stderr) == ("error", 3, "")
    assert "SyntaxError" in syntax.stderr
    assert memory.status == "memory"
    assert last.stdout == "1\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print('head')\nwhile True: pass", "timeout"),
        ("while True: print('x' * 1000)", "output_limit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("import os; os._exit(0)", "error"),
        ("import os\nfor n in range(3, 64):\n  try: os.write(n, b'z' * 18)\n  except OSError: pass", "killed"),
    ],
)
def test_a_run_that_is_ended_takes_the_state_with_it(box, code, status):
    _, ended, after, last = box.cells("x = 1", code, "x", "print(2)", timeout_s=1.0)
    assert ended.status == status
    assert after.stderr.startswith("sandbox: the previous state was lost: the previous run ended with status")
    assert "NameError" in after.stderr
    assert (last.stdout, last.stderr) == ("2\n", "")


async def test_a_cancelled_run_loses_the_state(box):
    async with box.sandbox.session() as session:
        await session.run("x = 1")
        before = descriptors()
        task = asyncio.create_task(session.run("import time; time.sleep(60)", timeout_s=60))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert before - descriptors()
        after = await session.run("print(1)")
    assert after.stdout == "1\n"
    assert "was cancelled" in after.stderr


async def test_threads_do_not_run_between_two_runs(box):
    async with box.sandbox.session() as session:
        count = "import threading\nn = 0\ndef work():\n    global n\n    while True: n += 1\n"
        await session.run(f"{count}threading.Thread(target=work, daemon=True).start()")
        pid = int((await session.run("import os; print(os.getpid())")).stdout)
        await asyncio.sleep(0.2)  # the order to stop is on its way
        first = stat(pid)
        await asyncio.sleep(0.5)
        second = stat(pid)
    assert first[2] == "T"
    assert first[13:15] == second[13:15]


def test_processor_time_does_not_add_up(box):
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    assert [execution.status for execution in box.cells(*[burn] * 5, limits={"timeout_s": 5.0})] == ["ok"] * 5


async def test_sessions_are_apart_and_idle_ones_take_no_slot():
    async with PythonSandbox(max_concurrency=1) as box:
        async with box.session() as one, box.session() as two:
            await one.run("x = 'one'; open('file', 'w')")
            await two.run("x = 'two'")
            seen = "import os; print(x, os.listdir('.'))"
            result = [(await session.run(seen)).stdout for session in (one, two)], (await box.run("print(3)")).stdout
    assert result == (["one ['file']\n", "two []\n"], "3\n")


async def test_a_large_run_and_runs_at_the_same_time(box):
    async with box.sandbox.session() as session:
        data = "x" * 3_000_000
        large = await session.run(f"data = {data!r}; print(len(data), len(input()))", data)
        together = await asyncio.gather(*(session.run(f"y = {n}; print(y)") for n in range(20)))
    assert large.stdout == "3000000 3000000\n"
    assert [execution.stdout for execution in together] == [f"{n}\n" for n in range(20)]


async def test_nothing_is_left_of_a_closed_session(tmp_path):
    async with PythonSandbox(scratch_dir=str(tmp_path)) as box:
        await box.run("")
        before = descriptors()
        async with box.session() as session:
            where = (await session.run("import os; open('x', 'w'); print(os.getcwd())")).stdout.strip()
        assert not left_open(before)
        await until(lambda: not os.path.exists(where))
        with pytest.raises(RuntimeError, match="outside"):
            await session.run("1")
