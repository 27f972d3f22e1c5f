"""Processes for bounded work: real ones, which answer, hang, die, and are never given a key."""

import os
import sys
import time

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.workers import WorkerDied, Workers, WorkerTimeout

PROGRAM = """
import json, os, sys, time
print('"ready"', flush=True)
for line in sys.stdin:
    order, value = json.loads(line)
    if order == "sleep":
        time.sleep(value)
    if order == "exit":
        os._exit(value)
    if order == "half":
        os.write(1, b'"half')
        time.sleep(60)
    answer = {"pid": os.getpid, "environment": lambda: dict(os.environ)}.get(order, lambda: value)()
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def workers():
    workers = Workers("tests", [sys.executable, "-c", PROGRAM], kept=2)
    yield workers
    workers.close()


def test_a_worker_answers_again_and_again(workers: Workers) -> None:
    first = workers.ask(["pid", None], 10)
    large = "x" * 5_000_000  # more than pipes hold, both ways
    assert workers.ask(["echo", large], 10) == large
    assert workers.ask(["pid", None], 10) == first
    assert workers.ask(["pid", None], 10, lambda _: False) == first
    assert workers.ask(["pid", None], 10) != first


@pytest.mark.parametrize("order", ["sleep", "half"])
def test_one_that_hangs_is_killed(workers: Workers, order: str) -> None:
    pid = workers.ask(["pid", None], 10)
    started = time.process_time()
    with pytest.raises(WorkerTimeout, match=r"within 0\.2 s"):
        workers.ask([order, 60], 0.2)
    assert time.process_time() - started < 0.1
    assert not os.path.exists(f"/proc/{pid}")
    assert workers.ask(["echo", 1], 10) == 1


def test_one_that_dies_says_how(workers: Workers) -> None:
    with pytest.raises(WorkerDied) as caught:
        workers.ask(["exit", 7], 10)
    assert caught.value.status == 7


def test_one_that_ended_without_work_is_not_asked(workers: Workers) -> None:
    pid = workers.ask(["pid", None], 10)
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert workers.ask(["pid", None], 10) != pid


def test_no_key_is_passed_on(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hush")
    monkeypatch.setenv("ANYTHING", "hush")
    environment = workers.ask(["environment", None], 10)
    assert "hush" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_without_a_process_there_is_no_answer(command: list[str]) -> None:
    with pytest.raises(UnscoredError, match="the process that does nothing does not start"):
        Workers("does nothing", command).ask(1, 10)


def test_a_fork_starts_its_own(workers: Workers) -> None:
    pid = workers.ask(["pid", None], 10)
    child = os.fork()
    if child == 0:
        os._exit(int(workers.ask(["pid", None], 10) == pid))
    assert os.waitpid(child, 0)[1] == 0
    assert workers.ask(["pid", None], 10) == pid
