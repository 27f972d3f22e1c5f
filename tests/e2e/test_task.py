"""The task of README in one file: played, checked, trained and evaluated as the page says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.trajectory.run_files import read_metrics
from tests.docs.pages import ROOT, block

pytestmark = [pytest.mark.engine]

RECIPE = ROOT / "recipes/lockers"


def test_a_task_in_one_file(tmp_path: Path) -> None:
    """The committed model is that of the cold start, which is kept until the file changes."""
    (tmp_path / "lockers.py").write_text(block("README.md", "python", "lockers.py").removeprefix("# lockers.py\n"))
    shutil.copytree(RECIPE / "model", tmp_path / "outputs/lockers/cold_start/model")
    shutil.move(tmp_path / "outputs/lockers/cold_start/model/made.json", tmp_path / "outputs/lockers/cold_start")
    environment = os.environ | {"VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "agent_rl.cli.main", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    assert "reward 1.0" in run("play", "lockers.py", "--expert")
    tried = "The environments of the run work in a trial, and all samples of a row begin alike."
    assert tried in " ".join(run("doctor", "lockers.py", "--all").split())
    words = [
        "trainer.total_training_steps=1",
        "trainer.save_freq=1",
        "trainer.test_freq=-1",
        "actor_rollout_ref.rollout.n=4",
    ]
    words += ["trainer.val_before_train=False"]  # `eval` below plays the rows of the split test
    trained = run("train", "lockers.py", *words)
    assert "steps to model" not in trained  # the cold start was not made again
    (step,) = read_metrics(tmp_path / "outputs/lockers")
    assert 0.2 <= step["agent/correctness"] <= 0.6
    summary = json.loads(run("eval", "lockers.py", "policy=local", "limit=16", "--json"))
    assert summary["all"]["scored"] == 16
    assert 0.2 < summary["all"]["reward"]["mean"] <= 1
