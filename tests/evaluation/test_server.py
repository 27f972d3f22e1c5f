"""The server's command line, and its end; the server itself is started in tests/e2e."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from agent_rl.errors import ConfigError, EngineError
from agent_rl.evaluation import sources
from agent_rl.evaluation.sources import cpu_flags, serve


def test_the_flags_of_the_profile():
    flags = cpu_flags()
    assert flags[flags.index("--device") + 1] == "cpu"
    assert "--disable-cuda-graph" in flags
    assert "--enable-memory-saver" not in flags  # it is false
    assert "True" not in flags


@pytest.mark.trainer
def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")

    async def start():
        async with serve(tmp_path / "nothing", "m", tmp_path / "log"):
            pass

    with pytest.raises(ConfigError, match=r"model: SGLang did not start: .*nothing"):
        asyncio.run(start())


@pytest.mark.parametrize("seen", [None, EngineError("8 episodes in a row have failed")])
def test_a_server_that_was_killed_is_the_cause_of_what_was_seen(tmp_path, monkeypatch, seen):
    """Also where nothing was raised: what came after the end is no result. A server of files stands for SGLang's."""
    started = []

    def start(model, name, port, log, flags):
        (tmp_path / "health").touch()
        log.touch()
        command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
        started.append(subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL))
        return started[-1]

    async def use(end):
        async with serve(tmp_path, "m", tmp_path / "log"):
            if end:
                os.kill(started[-1].pid, signal.SIGKILL)
                started[-1].wait()
            if seen is not None:
                raise seen

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(sources, "_start", start)
    with pytest.raises(EngineError) as caught:
        asyncio.run(use(end=True))
    said = f"the server has exited: ended by SIGKILL (out of memory?). See {tmp_path}/log"
    assert str(caught.value) == (said if seen is None else f"{said}. {seen}")
    if seen is None:
        asyncio.run(use(end=False))
    else:
        with pytest.raises(EngineError, match=r"^8 episodes"):
            asyncio.run(use(end=False))
