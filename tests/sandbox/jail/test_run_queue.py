"""Seconds of waiting for a core: of a process among others, of one that sleeps, and of threads among themselves."""

import subprocess
import sys
import time

import pytest

from agent_rl.sandbox.jail.run_queue import run_queue
from tests.busy import CORE, busy_core

pytestmark = pytest.mark.slow

PINNED = f"import os\nos.sched_setaffinity(0, {{{CORE}}})\nprint(flush=True)\n"
SPIN = "while True: pass"
ASIDE = "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()"  # as for a deeper stack
THREADS = """
import hashlib, threading
data = bytes(1 << 24)
def work():
    while True: hashlib.sha256(data)
for _ in range(6): threading.Thread(target=work).start()
"""


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


def test_threads_of_a_program_add_nothing_by_waiting_for_each_other():
    """Six on one core, where each waits five sixths of the time: nearly all of it for the others."""
    assert share_waited(THREADS, 0) < share_waited(SPIN, 5) - 0.3


def test_a_process_that_is_gone_has_not_waited():
    assert run_queue(2**22 + 1) == (0.0, 0.0, False)
