"""Writes the quickstart's results over several seeds into its README and the repository's README.

python docs/quickstart_figures.py                      # trains six seeds first, which takes seven minutes
python docs/quickstart_figures.py outputs/a outputs/b  # uses finished runs
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SEEDS = range(6)
MARKS = ("<!-- The figures, by docs/quickstart_figures.py: do not edit. -->", "<!-- The end of the figures. -->")
COLUMNS = {
    "reward": "val_reward",
    "accuracy": "val_accuracy",
    "tool calls per problem": "tool_calls_per_trajectory",
    "malformed turns": "malformed_rate",
}
RANGE = re.compile(r"rises from [\d.]+-[\d.]+ to [\d.]+-[\d.]+ over [^.]+\.")
"""Pattern of the sentence with the accuracy in the repository's README."""


def main(folders: Sequence[str]) -> None:
    """Read the summaries of the runs, and update both READMEs."""
    runs = [json.loads((Path(folder) / "summary.json").read_text()) for folder in folders or map(_train, SEEDS)]
    page = ROOT / "recipes/quickstart/README.md"
    start, end = MARKS
    text = f"{start}\n{_table(runs)}\n{end}"
    page.write_text(re.sub(f"{re.escape(start)}.*?{re.escape(end)}", text, page.read_text(), flags=re.DOTALL))
    before, after = (_range([run[f"val_accuracy_{when}"] for run in runs]) for when in ("before", "after"))
    readme, count = RANGE.subn(
        f"rises from {before} to {after} over {len(runs)} seeds.", (ROOT / "README.md").read_text()
    )
    if count != 1:
        sys.exit(f"README.md: expected one sentence that matches {RANGE.pattern}, got {count}")
    (ROOT / "README.md").write_text(readme)


def _train(seed: int) -> str:
    out = ROOT / f"outputs/quickstart_{seed}"
    command = [sys.executable, "recipes/quickstart/quickstart.py", "--out", str(out), "--seed", str(seed)]
    subprocess.run(command, cwd=ROOT, check=True)
    return str(out)


def _table(runs: Sequence[dict[str, Any]]) -> str:
    versions = {f"verl {run['verl_version']} and SGLang {run['sglang_version']}" for run in runs}
    rows = [
        [str(run["seed"]), *(f"{run[f'{key}_before']:.2f} to {run[f'{key}_after']:.2f}" for key in COLUMNS.values())]
        for run in runs
    ]
    lines = [["seed", *COLUMNS], ["---"] * (1 + len(COLUMNS)), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    steps = runs[0]["steps"]
    names = ", ".join(sorted(versions))
    return f"Each run takes {steps} steps with {names}, and is evaluated at temperature 1:\n\n{table}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f}-{max(values):.2f}"


if __name__ == "__main__":
    main(sys.argv[1:])
