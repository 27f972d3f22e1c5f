"""The task of README in one file: played, checked, trained and evaluated as the page says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.trajectory.run_files import read_metrics
from tests.docs.pages import ROOT, block
from tests.support.cli import shown

pytestmark = [pytest.mark.engine]

RECIPE = ROOT / "recipes/lockers"


def test_a_task_in_one_file(here: Path) -> None:
    """The committed model is that of the cold start, which is kept until the file changes."""
    (here / "lockers.py").write_text(block("README.md", "python", "lockers.py").removeprefix("# lockers.py\n"))
    shutil.copytree(RECIPE / "model", here / "outputs/lockers/cold_start/model")
    shutil.move(here / "outputs/lockers/cold_start/model/made.json", here / "outputs/lockers/cold_start")

    assert "reward 1.0" in shown("play", "lockers.py", "--expert")
    checks = " ".join(shown("doctor", "lockers.py", "--all").split())
    assert "environments ok no problem found" in checks
    words = ["trainer.total_training_steps=1", "trainer.save_freq=1", "trainer.test_freq=-1"]
    words += ["actor_rollout_ref.rollout.n=4", "trainer.val_before_train=False"]  # `eval` plays the split test
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", "lockers.py", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert "steps to model" not in done.stdout  # the cold start was not made again
    (step,) = read_metrics(here / "outputs/lockers")
    assert 0.2 <= step["agent/correctness"] <= 0.6
    summary = json.loads(shown("eval", "lockers.py", "policy=local", "limit=16", "--json"))
    assert summary["all"]["scored"] == 16
    assert 0.2 < summary["all"]["reward"]["mean"] <= 1
