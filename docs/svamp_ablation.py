"""Writes recipes/svamp_calculator/results/ablation.json: how much of the recipe's gain is the habit of calling.

    VERL_PLATFORM=cpu python docs/svamp_ablation.py

It reads the runs of the two experiments that recipes/svamp_calculator/README.md names, in outputs/experiments, and
evaluates each trained model without the tool. All figures are of the held-out rows, at temperature 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from agent_rl import read_trace
from agent_rl.evaluation.summary import SOLVED
from agent_rl.trajectory.estimates import estimate_mean, estimate_rate

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "outputs/experiments/svamp_calculator"
RESULTS = ROOT / "recipes/svamp_calculator/results/ablation.json"


def main() -> None:
    """Run the command line."""
    record: dict[str, Any] = {"command": "python docs/svamp_ablation.py", "runs": {}}
    for done in sorted(RUNS.glob("*/base/seed_*/done")):
        run = done.parent
        about = json.loads((run / "run.json").read_text())
        pays = "answer" if about["configuration"]["agent_rl"]["reward"]["correctness"]["weight"] else "call"
        record |= {"versions": about["versions"], "machine": about["machine"]}
        trajectories = read_trace(run).trajectories
        tested = trajectories[trajectories["split"] == "test"]
        steps = {"before": tested["step"].min(), "after": tested["step"].max()}
        parts = {when: _success(tested[tested["step"] == step]) for when, step in steps.items()}
        record["runs"][f"{pays}, {run.name.replace('_', ' ')}"] = {**parts, "without_tool": _without_tool(run)}
    if not record["runs"]:
        sys.exit(
            f"{RUNS} has no finished run: execute the two experiments that recipes/svamp_calculator/README.md names"
        )
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["runs"], indent=1))


def _success(episodes: pd.DataFrame) -> dict[str, Any]:
    """Return the success of all episodes and of those that called the tool, and the number of calls."""
    solved, called = episodes["reward.correctness"] >= SOLVED, episodes["calls"] > 0
    return {
        "success": estimate_rate([[float(each)] for each in solved]).plain(4),
        "success_with_call": estimate_rate([[float(each)] for each in solved[called]]).plain(4),
        "calls": estimate_mean([[float(each)] for each in episodes["calls"]]).plain(4),
    }


def _without_tool(run: Path) -> dict[str, Any]:
    """Evaluate the trained model while each call gets the answer that there is no such tool."""
    words = ["seed=1", "tools=null"]
    command = [sys.executable, "-m", "agent_rl.cli.main", "eval", str(run), "--out", str(run / "without_tool"), *words]
    subprocess.run(command, cwd=ROOT, check=True)
    return _success(read_trace(run / "without_tool").trajectories)


if __name__ == "__main__":
    main()
