"""Measures how many samples GRPO, `algo=turn` and `algo=gigpo` need to learn text_world.

python -m benchmarks.credit_curves          # executes the runs that are missing, then writes curves and table
python -m benchmarks.credit_curves --table  # only writes curves and table

Each algorithm trains on the reward of the outcome alone, and on the rewards of turns as well (GRPO gets their sum). Two
seeds of 40 steps choose one of three learning rates; five other seeds of at most 100 steps are the result. A run ends
when its success on the held-out rows, one answer per row at temperature 1, reaches the target. Each run is
stored when it ends, in recipes/text_world/results/credit, so the command can be stopped and resumed.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.evaluation.experiments.receipt import hashes
from agent_rl.launch.run_folder import machine, versions
from agent_rl.trajectory.viewer.charts import Chart
from agent_rl.verl_adapter.checkpoints import weights_digest

RECIPE = "recipes/text_world"
RESULTS, WORK = Path(RECIPE) / "results/credit", Path("outputs/credit_curves")
ALGORITHMS = ("grpo", "turn", "gigpo")
REWARDS = {
    "turns": [
        "agent_rl.environments.text_world=recipes/text_world/text_world.py:Milestones",
        "+agent_rl.reward.components.turns={kind: tool_rewards, weight: 1}",
    ],
    "outcome": [],
}
RATES = (1.5e-4, 3e-4, 6e-4)
TARGET, SAMPLES = 0.75, 128
"""Success on the held-out rows that ends a run, and samples per step."""
COMMON = (
    "kl=none",
    "trainer.test_freq=2",
    "trainer.save_freq=-1",
    "trainer.val_before_train=true",
)
AT_ONCE = 2
"""Number of runs at a time; a run keeps about one core busy."""
HELD_OUT = "val-aux/text_world/correctness/mean@1"


_stopping = threading.Event()
"""Set when the command ends early; then the runs that have not finished end too."""


class Run(NamedTuple):
    """One training run."""

    reward: str
    algorithm: str
    rate: float
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """The run's key in the file of the runs."""
        return f"{self.reward} {self.algorithm} lr={self.rate:g} seed={self.seed} steps={self.steps}"


Curves = dict[str, list[list[float]]]
"""(step, success on the held-out rows) of finished runs, by name."""


def main(only_table: bool) -> None:
    """Execute the missing runs, reward by reward, and write the results."""
    file = RESULTS / "runs.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"curves": {}}
    curves: Curves = record["curves"]
    if not only_table:
        _execute(file, record)
    _write(curves)


def _execute(file: Path, record: dict[str, Any]) -> None:
    """Make the cold-started model (9 minutes) unless it is there, and store each missing run when it ends."""
    os.environ["VERL_PLATFORM"] = "cpu"
    start, curves = ColdStart(RECIPE), record["curves"]
    start.make()
    provenance = _provenance(start.model)
    if curves and record["hashes"] != provenance["hashes"]:
        sys.exit(f"{file}: the recipe has changed since these runs; delete the file to run all of them again")
    for reward in REWARDS:
        for chosen in (False, True):
            runs = list(_finals(reward, curves) if chosen else _trials(reward))
            missing = [run for run in runs if run.name not in curves]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                futures = {pool.submit(_train, run): run.name for run in missing}
                try:
                    for future in as_completed(futures):
                        curves[futures[future]] = future.result()
                        file.write_text(json.dumps({**provenance, "curves": curves}) + "\n")
                finally:
                    _stopping.set()
                    pool.shutdown(cancel_futures=True)
                    _stopping.clear()


def _trials(reward: str) -> Iterator[Run]:
    for algorithm in ALGORITHMS:
        for rate in RATES:
            yield from (Run(reward, algorithm, rate, seed, 40) for seed in (101, 102))


def _finals(reward: str, curves: Curves) -> Iterator[Run]:
    for seed in range(1, 6):
        for algorithm in ALGORITHMS:
            yield Run(reward, algorithm, _best_rate(reward, algorithm, curves), seed, 100)


def _best_rate(reward: str, algorithm: str, curves: Curves) -> float:
    """Return the learning rate with the greatest mean success over the trials' evaluations."""
    trials = [run for run in _trials(reward) if run.algorithm == algorithm]
    return max(RATES, key=lambda rate: fmean(_area(curves[run.name]) for run in trials if run.rate == rate))


def _area(curve: list[list[float]]) -> float:
    """Return the mean success at steps 2, 4 ... 40; a run that has arrived keeps its success."""
    arrived = next((number for number, (_, success) in enumerate(curve) if success >= TARGET), len(curve))
    curve = curve[: arrived + 1]  # a run may have gone on for some steps
    by_step = {int(step): success for step, success in curve}
    return fmean(by_step.get(step, curve[-1][1]) for step in range(2, 41, 2))


def _train(run: Run) -> list[list[float]]:
    """Execute a run, and end it when it has reached the target."""
    folder = WORK / run.name.replace(" ", "_").replace("=", "_")
    shutil.rmtree(folder, ignore_errors=True)
    words = [
        f"algo={run.algorithm}",
        f"data.seed={run.seed}",
        f"actor_rollout_ref.actor.optim.lr={run.rate}",
        f"trainer.total_training_steps={run.steps}",
        f"agent_rl.run.folder={folder.absolute()}",
    ]
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", RECIPE, *COMMON, *words, *REWARDS[run.reward]]
    print(time.strftime("%H:%M:%S"), run.name, flush=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    curve: list[list[float]] = []
    has_arrived = False
    try:
        while process.poll() is None and not _stopping.wait(1):
            curve = _curve(folder / "metrics.jsonl")
            if not has_arrived and curve and curve[-1][1] >= TARGET:
                has_arrived = True
                process.terminate()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
    curve = _curve(folder / "metrics.jsonl")
    if not has_arrived and (process.returncode != 0 or curve[-1][0] != run.steps):
        sys.exit(f"{run.name} failed; its log is {folder / 'train.log'}")
    shutil.rmtree(folder)
    print(f"  {curve[-1]}", flush=True)
    return curve


def _curve(metrics: Path) -> list[list[float]]:
    if not metrics.is_file():
        return []
    lines = [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [[line["step"], round(line["data"][HELD_OUT], 4)] for line in lines if HELD_OUT in line["data"]]


def _provenance(model: Path) -> dict[str, Any]:
    return {
        "command": "python -m benchmarks.credit_curves",
        "hashes": hashes(RECIPE, []),
        "cold_start_model_sha256": weights_digest(model),
        "versions": versions(),
        "machine": machine(model),
    }


def _samples(curve: list[list[float]], steps: int) -> float:
    """Return the samples until the target, interpolated between two evaluations; a run that misses it has used all."""
    for (before, low), (after, high) in itertools.pairwise(curve):
        if high >= TARGET:
            return SAMPLES * (before + (after - before) * (TARGET - low) / (high - low))
    return SAMPLES * steps


def _write(curves: Curves) -> None:
    """Write the curves and the table of the finished runs."""
    lines = [
        "| rewards | algorithm | learning rate | samples to 75%, by seed | median | share of GRPO's |",
        "|---" * 6 + "|",
    ]
    for reward in REWARDS:
        if any(run.name not in curves for run in _trials(reward)):
            continue
        finals = [run for run in _finals(reward, curves) if run.name in curves]
        drawn = {name: _mean([curves[run.name] for run in finals if run.algorithm == name]) for name in ALGORITHMS}
        title = f"held-out success, reward of {reward}, mean of seeds"
        Chart(title, lines=drawn, levels={"target": TARGET}).write_png(RESULTS / f"{reward}.png")
        for algorithm in ALGORITHMS:
            lines.append(_row(reward, algorithm, finals, curves))
    (RESULTS / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def _mean(curves: list[list[list[float]]]) -> list[tuple[int, float]]:
    """Return the mean success by step; a run that has arrived keeps its success."""
    steps = sorted({int(step) for curve in curves for step, _ in curve})
    by_step = [dict(curve) for curve in curves]
    return [(step, fmean(own.get(step, list(own.values())[-1]) for own in by_step)) for step in steps]


def _row(reward: str, algorithm: str, finals: list[Run], curves: Curves) -> str:
    samples = {name: [_samples(curves[run.name], run.steps) for run in finals if run.algorithm == name]
               for name in ("grpo", algorithm)}  # fmt: skip
    own, grpo = (median(samples[name] or [math.nan]) for name in (algorithm, "grpo"))
    listed = ", ".join(f"{value:,.0f}" for value in samples[algorithm])
    rate = _best_rate(reward, algorithm, curves)
    return f"| {reward} | {algorithm} | {rate:g} | {listed} | {own:,.0f} | {own / grpo:.0%} |"


if __name__ == "__main__":
    os.environ |= {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1"}  # runs at the same time share the cores
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main("--table" in sys.argv[1:])
