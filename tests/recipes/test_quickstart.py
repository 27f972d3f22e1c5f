"""The quickstart, small: the same script with few steps, so that every part of it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl import trace

ROOT = Path(__file__).parents[2]

SUMMARY = {
    "engine": str,
    "sglang_version": str,
    "verl_version": str,
    "seed": int,
    "steps": int,
    **{
        f"{name}_{when}": float | int
        for name in ("val_reward", "val_accuracy", "tool_calls_per_trajectory", "malformed_rate")
        for when in ("before", "after")
    },
    "warm_start_seconds": float | int,
    "train_seconds": float | int,
    "seconds": float | int,
}


@pytest.mark.engine
def test_the_whole_quickstart_in_two_steps(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--steps", "2", "--test-problems", "12"]
    done = subprocess.run(
        [sys.executable, "recipes/quickstart/quickstart.py", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("1/3 model", "2/3 data", "3/3 GRPO", "mean reward", "before training", "after training"):
        assert expected in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    shown = (done.stderr + done.stdout).splitlines()
    assert next(number for number, line in enumerate(shown) if line.startswith("step 1/2: reward ")) <= 18
    assert sum(line.startswith("started: ") for line in shown) == 8
    assert {"run.json", "train.log", "metrics.jsonl", "rollouts"} <= {path.name for path in tmp_path.iterdir()}

    summary = json.loads((tmp_path / "summary.json").read_text())
    for key, kind in SUMMARY.items():
        assert isinstance(summary[key], kind), key
    assert (summary["engine"], summary["sglang_version"], summary["steps"]) == ("sglang", "0.5.12", 2)
    assert summary["rollout_probs_diff_mean_max"] < 1e-5
    evaluations = [t for t in trace.read(tmp_path / "trace.jsonl") if t.info["split"] == "test"]
    assert sorted(t.info["step"] for t in evaluations) == [0] * 12 + [2] * 12
    page = (tmp_path / "report.html").read_text()
    assert "2 steps" in page
    assert "<figcaption>Reward" in page
    assert "trajectories of the last step" in page
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_wrong_key_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--steps", "1", "agent_rl.budgt.x=1"]
    done = subprocess.run(
        [sys.executable, "recipes/quickstart/quickstart.py", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2
    output = " ".join(done.stdout.split())
    assert "error: agent_rl.budgt: unknown key" in output
    assert "Did you mean 'budget'?" in output
    assert "Traceback" not in done.stdout + done.stderr
