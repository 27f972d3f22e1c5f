"""`agent-rl view` as a process: the address that it prints answers, and what cannot be served is refused."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from agent_rl.trajectory.viewer.app import serve
from agent_rl.trajectory.viewer.records import find_sources, newest_run
from tests.trajectory.viewer.browser import served
from tests.trajectory.viewer.conftest import trajectory

pytestmark = pytest.mark.slow


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "agent_rl.cli.main", "view", *words]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_printed_address_shows_the_trajectories(tmp_path: Path, host: str) -> None:
    """On this machine's own address without a name, which is the newest run; on all, of a named one and as JSON."""
    for age, name in enumerate(("new", "old")):
        trace.append(tmp_path / "outputs" / name / "trace.jsonl", trajectory(age, 0))
        (tmp_path / "outputs" / name / "run.json").write_text("{}")
        os.utime(tmp_path / "outputs" / name / "run.json", (1000 - age, 1000 - age))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = command("--port", "0", *(() if host == "127.0.0.1" else ("--host", host, "--json", "outputs/new")))
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if line == "{\n":
                said = json.loads(line + "".join(iter(process.stdout.readline, "}\n")) + "}")
                line = f"{said['trajectories']} trajectory: {said['url']}\n"
            found = re.fullmatch(rf"1 trajectory: http://{re.escape(host)}(:\d+/)(\?token=\S+)?\n", line)
            assert found, line
            assert (found[2] is None) == (host == "127.0.0.1")
            with httpx.Client(base_url=f"http://127.0.0.1{found[1]}", follow_redirects=True) as client:
                assert ">1 trajectory</a>" in client.get(f"/{found[2] or ''}").text
                page = client.get("/t/1").text
                assert "What is number 100?" in page
                assert "new/trace.jsonl" in page
            if found[2]:
                assert httpx.get(f"http://127.0.0.1{found[1]}").status_code == 401
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def test_where_there_is_no_run_a_name_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no run under .*nothing"):
        newest_run(tmp_path / "nothing")


def test_a_viewer_that_is_killed_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """It writes nothing into the run's folder, and holds no lock that the run waits for."""
    file = tmp_path / "run/trace.jsonl"
    for number in range(300):
        trace.append(file, trajectory(number, 0))
    before, names = file.read_bytes(), sorted(tmp_path.glob("run/**/*"))
    with served(tmp_path / "cache", [tmp_path / "run"]) as (address, process):
        assert httpx.get(address).status_code == 200
        with open(file, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.wait(20)
    assert (file.read_bytes(), sorted(tmp_path.glob("run/**/*"))) == (before, names)


def test_a_port_that_is_taken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trace.append(tmp_path / "trace.jsonl", trajectory(0, 0))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port: 127.0.0.1:{port} cannot be used"):
            serve(find_sources([str(tmp_path)]), "127.0.0.1", port, None, lambda url, count: None)
