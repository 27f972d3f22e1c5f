"""Requests by signals in this process; what the trainer does with them is tested in tests/e2e/test_stops.py."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_rl.launch.stopping import SIGNALS, Aborted, StoppedRun, StopRequest


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """The suite itself may run under nohup or in the background."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def test_the_first_signal_asks_and_the_second_ends(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    request = StopRequest()
    request.begin(tmp_path)
    request.can_wait = lambda: True
    with request.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.asked == "SIGTERM"
        assert (tmp_path / "stop").exists()
        os.kill(os.getpid(), signal.SIGHUP)  # of the same end of a session
        with pytest.raises(Aborted) as caught:
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # cleaning up is not interrupted
    assert (caught.value.code, caught.value.by) == (130, "SIGINT")
    assert signal.getsignal(signal.SIGTERM) == before


def test_before_there_is_something_to_wait_for_the_first_one_ends(tmp_path: Path) -> None:
    request = StopRequest()
    request.begin(tmp_path)
    with pytest.raises(Aborted) as caught, request.on_signals():
        os.kill(os.getpid(), signal.SIGHUP)
    assert caught.value.code == 128 + signal.SIGHUP
    assert not (tmp_path / "stop").exists()


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest().on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_old_request_is_forgotten_and_an_answer_is_read_once(tmp_path: Path) -> None:
    (file := tmp_path / "stop").touch()
    request = StopRequest()
    request.begin(tmp_path)
    assert not file.exists()
    assert request.answer() is None
    request.ask()
    assert request.answer() is None  # the run ended before it looked
    file.write_text('{"step": 7, "checkpoint": "/c", "command": "agent-rl train x"}\n')
    assert request.answer() == StoppedRun(7, "/c", "agent-rl train x")
    assert request.answer() is None
