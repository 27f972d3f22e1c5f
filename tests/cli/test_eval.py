"""`agent-rl eval` as a user runs it: a process of its own, which is killed, against a server of its own."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent_rl.cli._evaluation import short_name
from agent_rl.cli.main import app
from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from tests.evaluation.conftest import ROOT
from tests.support.interrupts import heed_interrupts
from tests.support.openai_server import MODEL
from tests.support.profiles import bounded, times

pytestmark = pytest.mark.slow

KILLS = times(4, full=10)


@pytest.fixture
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.openai_server", "random", "0.02"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def command(data: str, tools: str, server: str, out: Path, *words: str) -> list[str]:
    given = ["--data", data, "--tools", tools, "--endpoint", server, "--model", MODEL, "--loop", "react_agent"]
    given += ["-n", "8", "--out", str(out), "seed=0", "concurrency=4", *words]
    return [sys.executable, "-m", "agent_rl.cli.main", "eval", *given]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120)


def lines(out: Path) -> int:
    path = out / "trajectories.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_after(arguments: list[str], out: Path, more: int, delay_s: float) -> None:
    """Start it, and kill it when so many more episodes are done and a moment has passed."""
    before = lines(out)
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while lines(out) < before + more:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(delay_s)
        process.kill()


def episodes(out: Path) -> dict[str, object]:
    """What was evaluated, without what depends on the machine."""
    found = {}
    for trajectory in trace.read(out / "trajectories.jsonl", torn="skip"):
        trajectory.seconds = trajectory.ended = 0.0
        for turn in trajectory.turns:
            turn.generation_seconds = turn.tool_seconds = 0.0
            for result in turn.results:
                result.seconds = result.queue_seconds = 0.0
        assert trajectory.id not in found, "an episode was run twice"
        found[trajectory.id] = trajectory.to_dict()
    return found


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("outputs/my_run/checkpoints/global_step_30/merged_model", "my_run_global_step_30"),
        ("/data/kept/global_step_3/merged_model", "kept_global_step_3"),
        ("recipes/quickstart/model", "model"),
    ],
)
def test_the_default_folder_of_a_checkpoint_has_its_run_and_step(model: str, name: str) -> None:
    assert short_name(Path(model)) == name


@bounded
def test_kills_change_nothing(tmp_path: Path, data: str, tools: str, server: str) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    done = run(*command(data, tools, server, undisturbed))
    assert done.returncode == 0, done.stderr
    rng = random.Random(0)
    for _ in range(KILLS):
        kill_after(command(data, tools, server, killed), killed, rng.randint(0, 4), rng.uniform(0, 0.1))
    assert 0 < lines(killed) < 96
    again = run(*command(data, tools, server, killed))
    assert again.returncode == 0, again.stderr
    assert (killed / "table.txt").read_text() == (undisturbed / "table.txt").read_text()
    assert "pass@8" in done.stdout
    assert episodes(killed) == episodes(undisturbed)
    assert len(episodes(killed)) == 96
    summary = json.loads((killed / "summary.json").read_text())
    assert (summary["missing"], summary["unscored"]) == (0, {})
    assert summary["of"]["data"] == f"sha256:{hashlib.sha256(Path(data).read_bytes()).hexdigest()}"
    assert summary["of"] == json.loads((undisturbed / "summary.json").read_text())["of"]


def test_an_interrupt_is_one_line(tmp_path: Path, data: str, tools: str, server: str) -> None:
    out = tmp_path / "out"
    slow = command(data, tools, server, out, "concurrency=1")  # it must not be done before it is interrupted
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": heed_interrupts}
    with subprocess.Popen(slow, text=True, **pipes) as process:
        while lines(out) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    said = f"interrupted: {lines(out)} of 96 episodes are kept in {out}. Resume with: agent-rl eval --data {data} "
    assert stderr.strip().startswith(said)
    assert stderr.strip().count("\n") == 0
    assert json.loads((out / "summary.json").read_text())["missing"] == 96 - lines(out)


def inside(arguments: list[str]) -> Result:
    """The same command in this process, which is quicker; its errors are raised."""
    return CliRunner().invoke(app, arguments[3:], catch_exceptions=False)


def test_what_is_done_needs_no_endpoint(tmp_path: Path, data: str, tools: str, server: str) -> None:
    arguments = command(data, tools, server, tmp_path / "out", "limit=2")
    first = inside(arguments)
    arguments[arguments.index(server)] = "http://127.0.0.1:1"
    assert inside(arguments).stdout == first.stdout
    found = json.loads(inside([*arguments, "--json"]).stdout)
    assert (found["all"]["scored"], found["missing"], found["folder"]) == (16, 0, str(tmp_path / "out"))
    with pytest.raises(ConfigError, match=rf"^sampling.temperature: 0.5, but {tmp_path}/out was started with 1.0\."):
        inside([*arguments, "sampling.temperature=0.5"])
