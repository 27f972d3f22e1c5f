"""What a program does to itself, its sandbox or the machine is its own failure: it never makes itself unscored."""

import asyncio
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from agent_rl.sandbox import PythonSandbox, StdioCase, grade
from agent_rl.sandbox.host import supervisor
from tests.sandbox.tiers import WITHOUT_ISOLATION

pytestmark = pytest.mark.slow

FEW_IDS = 'echo 400 > /proc/sys/kernel/pid_max && exec "$@"'
SMALL = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", FEW_IDS, "_")
"""Begins a command that runs where there are 400 process ids."""
BOMB = """
import _thread, threading, time
threading.stack_size(1 << 15)
while True:
    try:
        _thread.start_new_thread(time.sleep, (60,))
    except RuntimeError:
        pass
"""
SCRIPT = f"""
import asyncio, json
from agent_rl.sandbox import FunctionCase, PythonSandbox, StdioCase, grade
async def main():
    async with PythonSandbox(max_concurrency=8) as box:
        found = [(await box.run("print(1)")).status.value]
        for case in (StdioCase("", "1"), FunctionCase("f", (), 1)):
            report = await grade({BOMB!r}, [case] * 2, sandbox=box, timeout_s=1.0)
            found += [each.status.value for each in report.cases]
        async with box.session(1.0) as session:
            for _ in range(2):
                found.append((await session.run({BOMB!r})).status.value)
        bomb = asyncio.ensure_future(box.run({BOMB!r}, timeout_s=1.0))
        await asyncio.sleep(0.05)
        in_a_new_zygote = "import numpy\\nprint(1)"
        honest = [box.run(code, timeout_s=20) for code in ("print(1)", in_a_new_zygote)]
        honest = [each.stdout for each in await asyncio.gather(*honest)]
        return {{"hostile": [*found[1:], (await bomb).status.value], "honest": [found[0], *honest]}}
print(json.dumps(asyncio.run(main())))
"""


@cache
def small_machines() -> bool:
    """Whether one can be made here."""
    try:
        return subprocess.run([*SMALL, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_threads_without_end_where_process_ids_are_few():
    if not small_machines():
        pytest.skip("a namespace with few process ids takes root and Linux 6.14")
    command = [*SMALL, sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["honest"] == ["ok", "1\n", "1\n"]
    assert set(found["hostile"]) <= {"killed", "error", "timeout", "memory"}, found


KILL = "import os, time\nparent = os.getppid()\ntime.sleep(0.3)\nos.kill(parent, 9)\ntime.sleep(9)"


async def test_a_program_that_kills_its_sandbox_has_failed(monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "_COMMAND", WITHOUT_ISOLATION)
    async with PythonSandbox(packages=(), unsafe=True, scratch_dir=str(tmp_path), max_concurrency=8) as box:
        await box.run("")
        others = [asyncio.ensure_future(box.run("import time\ntime.sleep(1)\nprint(1)")) for _ in range(3)]
        execution = await box.run(KILL)
        report = await grade(KILL, [StdioCase("", "1")] * 2, sandbox=box)
        async with box.session() as session:
            first = await session.run(KILL)
            await session.run("x = 1")
            later = await session.run(KILL)
            after = await session.run("print(2)")
        killers, others = [execution, first, later], await asyncio.gather(*others)
    assert [each.status.value for each in killers] == ["killed"] * 3
    assert report.passed == 0
    assert after.stdout == "2\n"
    assert [(each.status.value, each.stdout) for each in others] == [("ok", "1\n")] * 3
    assert list(tmp_path.iterdir()) == []
