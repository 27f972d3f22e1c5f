"""Programs that want more time than they are given, and what a slow host does to programs that do not.

How much they get is measured in processor time: what else the machine does changes nothing about it.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest

from agent_rl.sandbox import FunctionCase, PythonSandbox, StdioCase, grade
from agent_rl.sandbox.host import process, supervisor
from tests.sandbox.tiers import TIERS, on

pytestmark = pytest.mark.slow

LIMIT_S = 0.5
BEYOND_S = 0.5
"""Processor seconds that a program may get beyond its limit."""

MAPPINGS = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(60):
    os.mkdir("d" * 60)
    os.chdir("d" * 60)
file = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(file, bytes(4096))
os.unlink("f")
for n in range(60_000):
    libc.mmap(None, 4096, 1 + 2 * (n % 2), 1, file, 0)
"""
BUSY = "end = time.process_time() + 2\nwhile time.process_time() < end: pass\n"
PROGRAMS = {
    "60,000 mappings": MAPPINGS + BUSY,
    "files that move all the time": """
import os, threading, time
for n in range(1900): open(str(n), "w").close()
os.mkdir("a")
def move():
    while True:
        os.rename("a", "b")
        os.rename("b", "a")
threading.Thread(target=move, daemon=True).start()
"""
    + BUSY,
    "a signal that is ignored": "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n" + BUSY,
    "threads outside of the interpreter": """
import hashlib, threading, time
data = bytes(1 << 24)
def work():
    while True: hashlib.sha256(data)
for _ in range(8): threading.Thread(target=work, daemon=True).start()
"""
    + BUSY,
}


def processor_seconds(pid: int) -> float:
    """Of the children of `pid` that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("tier", list(TIERS))
async def test_processor_time_ends_with_the_limit(tier):
    async with on(tier) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        for name, program in PROGRAMS.items():
            for in_session in (False, True):
                before = processor_seconds(zygote)
                if in_session:
                    async with box.session(LIMIT_S) as session:
                        execution = await session.run(program)
                else:
                    execution = await box.run(program, timeout_s=LIMIT_S)
                assert execution.status in ("timeout", "killed"), (name, execution)
                assert processor_seconds(zygote) - before <= LIMIT_S + BEYOND_S, name


def test_an_answer_that_comes_too_late_passes_nothing(box):
    """The program ends by itself, and well: only the time is not in order."""
    busy = "end = time.process_time() + 1.2\nwhile time.process_time() < end: pass\n"
    late = f"{MAPPINGS}{busy}print(1, flush=True)\nos._exit(0)"
    function = f"def f():\n    {MAPPINGS.strip()}{busy}".replace("\n", "\n    ") + "return 1"
    cases = [StdioCase("", "1"), FunctionCase("f", (), 1)]
    for code, case in zip((late, function), cases, strict=True):
        report = box.do(grade(code, [case] * 4, sandbox=box.sandbox, timeout_s=0.5))
        assert report.passed == 0


async def test_a_program_gains_nothing_by_what_makes_the_watch_slow():
    """Some make their lists of mappings long and wait; meanwhile another one runs past its limit, and ends well."""
    late = "import time\nend = time.process_time() + 1.8\nwhile time.process_time() < end: pass\nprint(1)"
    async with PythonSandbox(packages=(), max_concurrency=8) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        slow = [asyncio.ensure_future(box.run(f"{MAPPINGS}time.sleep(9)", timeout_s=9)) for _ in range(3)]
        await asyncio.sleep(1)
        before = processor_seconds(zygote)
        execution = await box.run(late, timeout_s=LIMIT_S)
        used_s, slow = processor_seconds(zygote) - before, await asyncio.gather(*slow)
    assert execution.status == "timeout"
    assert used_s <= LIMIT_S + BEYOND_S
    assert {(each.status, "mapped memory in more pieces" in each.stderr) for each in slow} == {("killed", True)}


async def test_many_at_once_slow_nobody_down(box):
    """Neither the deadlines of the others nor honest programs."""
    hostile = [box.sandbox.run(PROGRAMS["files that move all the time"], timeout_s=LIMIT_S) for _ in range(4)]
    running = [asyncio.ensure_future(each) for each in hostile]
    honest = await asyncio.gather(*(box.sandbox.run("print(1)", timeout_s=20) for _ in range(20)))
    hostile = await asyncio.gather(*running)
    assert {(each.status, each.stdout) for each in honest} == {("ok", "1\n")}
    assert {each.status.value for each in hostile} <= {"timeout", "killed"}


async def test_an_event_loop_that_stands_still_kills_no_sandbox(monkeypatch, caplog):
    monkeypatch.setattr(process, "_HANG_S", 0.2)
    async with PythonSandbox(packages=()) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        long = asyncio.ensure_future(box.run("import time\ntime.sleep(2)\nprint(1)", timeout_s=20))
        short = asyncio.ensure_future(box.run("print(2)", timeout_s=0.3))
        await asyncio.sleep(0)
        time.sleep(1.2)  # noqa: ASYNC251 - this is the point
        found = await asyncio.gather(long, short, box.run("print(3)"))
        same = box._pool.ready("lean").pid == zygote
    assert [each.stdout for each in found] == ["1\n", "2\n", "3\n"]
    assert same
    assert "does not answer" not in caplog.text


async def test_nor_does_it_make_a_run_late_that_was_in_time(box):
    async with box.sandbox.session(0.5) as session:
        await session.run("x = 1")
        running = asyncio.ensure_future(session.run("print(x)"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(1.2)  # noqa: ASYNC251 - this is the point
        execution = await running
    assert (execution.status, execution.stdout) == ("ok", "1\n")


async def test_a_sandbox_that_starts_while_the_event_loop_stands_still(monkeypatch):
    monkeypatch.setattr(supervisor, "_START_S", 3.0)
    async with PythonSandbox(packages=()) as box:
        running = asyncio.ensure_future(box.run("print(1)"))
        await asyncio.sleep(0.01)
        time.sleep(3.5)  # noqa: ASYNC251 - this is the point
        assert (await running).stdout == "1\n"


async def test_a_zygote_that_does_not_answer_is_killed(monkeypatch, caplog):
    monkeypatch.setattr(process, "_HANG_S", 0.2)
    async with PythonSandbox(packages=()) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        os.kill(zygote, 19)
        assert (await box.run("print(1)", timeout_s=0.05)).stdout == "1\n"  # in another one
    assert "does not answer" in caplog.text
