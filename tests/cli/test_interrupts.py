"""Ctrl-C: one line with what is kept and the command that resumes, which does nothing twice; exit code 130."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_rl.cli.main import app
from agent_rl.trajectory import trace
from tests.rewards.lab.episodes import problems, trajectories
from tests.support.rows import sum_row

pytestmark = pytest.mark.slow

SCORERS = """
from pathlib import Path


def score(solution_str, ground_truth, extra_info):
    with open("asked.txt", "a") as asked:
        asked.write(".")
    if Path("stop").exists() and Path("asked.txt").stat().st_size > 9:
        raise KeyboardInterrupt
    return 1.0
"""


@pytest.fixture
def folder(here: Path) -> Path:
    """Eight problems with four trajectories each, and a scorer that is interrupted at its tenth call."""
    for trajectory in trajectories(problems(8)):
        trace.append(here / "trace.jsonl", trajectory)
    (here / "scorers.py").write_text(SCORERS)
    (here / "stop").touch()
    return here


def run(*words: str) -> Result:
    given = ["reward", *words, "trace.jsonl", "agent_rl.reward.correctness.scorer=scorers.py:score", "--json"]
    sys.argv[1:], before = given, sys.argv[1:]
    try:
        return CliRunner().invoke(app, [*given, "--concurrency", "1"])
    finally:
        sys.argv[1:] = before


def test_a_command_that_keeps_nothing_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "my_agents.py").write_text("raise KeyboardInterrupt")
    words = ["data", "check", "my rows.jsonl", "--script", "my_agents.py"]
    monkeypatch.setattr(sys, "argv", ["agent-rl", *words])
    done = CliRunner().invoke(app, words)
    said = "interrupted: Nothing was saved. Resume with: agent-rl data check 'my rows.jsonl' --script my_agents.py"
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (130, "", said)


def test_a_check_of_data_goes_on_after_the_ground_truths_that_are_scored(folder: Path) -> None:
    Path("rows.jsonl").write_text("".join(json.dumps(sum_row(n, data_source="sums")) + "\n" for n in range(8)))
    words = ["data", "check", "rows.jsonl", "--set", "agent_rl.reward.correctness.scorer=scorers.py:score", "--json"]
    stopped = CliRunner().invoke(app, words)
    (file,) = Path("outputs/unfinished").iterdir()
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert f"interrupted: 4 of 8 truths are kept in {file}. Resume with: " in stopped.stderr
    (folder / "stop").unlink()
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert (folder / "asked.txt").stat().st_size == 8 + 2 + 8  # its own and another one's for each row
    assert not file.exists()
    assert json.loads(CliRunner().invoke(app, words).stdout) == (found := json.loads(done.stdout))
    assert [(each["kind"], each["rows"]) for each in found["findings"]] == [("another's ground truth", 8)]


@pytest.mark.parametrize(
    ("words", "kept", "asked"),
    [(["score"], "2 of 8 groups", 8 + 4 + 24), (["attack", "--only", "padding"], "4 of 32 trajectories", 8 + 2 + 56)],
)
def test_an_interrupted_command_goes_on(folder: Path, words: list[str], kept: str, asked: int) -> None:
    stopped = run(*words)
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    (file,) = Path("outputs/unfinished").iterdir()
    line = (
        f"interrupted: {kept} are kept in {file}. Resume with: agent-rl reward {' '.join(words)} trace.jsonl agent_rl"
    )
    assert stopped.stderr.strip().startswith(line)
    (folder / "stop").unlink()
    with open(file, "a") as torn:
        torn.write('[7, {"sco')
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert (folder / "asked.txt").stat().st_size == asked  # nothing that was kept is scored again
    assert not file.exists()
    assert json.loads(run(*words).stdout) == json.loads(done.stdout)
