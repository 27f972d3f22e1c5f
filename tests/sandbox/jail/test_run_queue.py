"""Seconds of waiting for a core: of a process among others, and of one that sleeps."""

import subprocess
import sys
import time

import pytest

from agent_rl.sandbox.jail.run_queue import run_queue
from tests.support.busy import CORE, busy_core

pytestmark = pytest.mark.slow

PINNED = f"import os\nos.sched_setaffinity(0, {{{CORE}}})\nprint(flush=True)\n"
SPIN = "while True: pass"
ASIDE = "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()"  # as for a deeper stack


def share_waited(code: str, spinners: int) -> float:
    """Of the time by the clock, on a core with so many others."""
    command = [sys.executable, "-I", "-c", f"{PINNED}{code}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, busy_core(spinners):
        assert process.stdout.readline()
        try:
            time.sleep(0.2)
            started, before = time.monotonic(), run_queue(process.pid)[1]
            time.sleep(1.0)
            waited = run_queue(process.pid)[1] - before
            return waited / (time.monotonic() - started)
        finally:
            process.kill()


def test_a_program_among_others_waits():
    assert share_waited(SPIN, 3) > 0.4
    assert share_waited(ASIDE, 3) > 0.4


def test_a_program_that_sleeps_does_not():
    assert share_waited("import time\ntime.sleep(60)", 3) < 0.1


def test_a_process_that_is_gone_has_not_waited():
    assert run_queue(2**22 + 1) == (0.0, 0.0, False)
