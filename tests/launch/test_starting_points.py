"""`agent-rl new`: what it writes passes its own test, composes and trains, and the commands that it prints work."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.launch.starting_points import KINDS, make_start
from tests.support.cli import shown

pytestmark = pytest.mark.slow

COMMANDS: dict[str, list[str]] = {}
"""The commands that come next, by kind."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind, one of them in a folder of another name."""
    folder = tmp_path_factory.mktemp("starts")
    before = os.getcwd()
    os.chdir(folder)
    try:
        for kind in KINDS:
            _, COMMANDS[kind] = make_start(
                kind, f"own_{kind}", Path("agents/own" if kind == "agent" else f"own_{kind}")
            )
    finally:
        os.chdir(before)
    return folder


def test_no_name_of_the_template_is_left(folder: Path) -> None:
    assert set(KINDS) == {"agent", "recipe", "reward", "task", "tool"}
    for path in folder.rglob("*.*"):
        if path.suffix != ".parquet" and path.is_file():
            assert not re.search(r"my_(agent|recipe|reward|task|tool)|My(Agent|Reward|Task|Tool)", path.read_text()), (
                path
            )


@pytest.mark.parametrize("place", ["my_tools/calc", "my tools/calc", r"my\data/calc"])
def test_the_folder_may_have_any_name(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files, commands = make_start("tool", "calc", Path(place))
    assert Path(place, "calc.yaml") in files
    assert shlex.split(commands[1]) == ["agent-rl", "tools", "call", f"{place}/calc.yaml", "calc", '{"item": "bread"}']
    assert shlex.split(commands[3]) == ["VERL_PLATFORM=cpu", "agent-rl", "train", place]


def test_its_own_tests_pass(folder: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "--basetemp", str(folder / "temporary"), str(folder)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^9 passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.trainer
@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_that_come_next(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is run, without those that need what training has written; training itself is composed."""
    monkeypatch.chdir(folder)
    assert COMMANDS[kind][0] == f"pytest {'agents/own' if kind == 'agent' else f'own_{kind}'}"
    for words in map(shlex.split, COMMANDS[kind][1:]):
        if words[0] == "agent-rl" and "outputs/" not in " ".join(words):
            shown(*words[1:])
        elif "train" in words:
            assert f"experiment_name: own_{kind}" in shown(*words[2:], "--dry-run")


@pytest.mark.recipes
@pytest.mark.engine
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_two_steps(kind: str, folder: Path) -> None:
    (line,) = [line for line in COMMANDS[kind] if " train " in line]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len((folder / f"outputs/own_{kind}/trace.jsonl").read_text().splitlines()) > 16
    for words in map(shlex.split, COMMANDS[kind]):
        if words[:2] == ["agent-rl", "reward"]:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env)
            assert done.returncode in (0, 1), done.stderr
