"""Trains with TRL, which `make bench` installs beside the environment, and notes when steps end, for two benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.namespaces import ROOT

TRL = Path(os.environ.get("TRL_DIR", f"{sys.prefix}/trl"))
"""A folder of its own: where verl finds a TRL, it imports a class that TRL 1 no longer has."""
PROGRAM = ROOT / "tests/support/bench/trl_step.py"
STEPS = "steps.jsonl"
"""The file, in the trainer's folder, that has a line for each step."""


def train_with_trl(
    model: Path, rows: Path, out: Path, options: dict[str, Any], *, tool_s: float = 0.0, saves: bool = False
) -> list[dict[str, float]]:
    """Train with TRL's GRPOTrainer, and return the lines of the steps; the arguments are those of the program."""
    settings = {"model": model, "rows_path": rows, "tool_s": tool_s, "out": out, "options": options, "saves": saves}
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{TRL}", "HF_HOME": f"{out}/cache"}
    for name in ("VERL_PLATFORM", "OMP_NUM_THREADS"):
        env.pop(name, None)
    command = [sys.executable, str(PROGRAM), json.dumps(settings, default=str)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    return [json.loads(line) for line in (out / STEPS).read_text().splitlines()]


class StepClock(threading.Thread):
    """Notes when each line of a file was written, and what `cost` returned then; a line is a step that has ended.

    Args:
        path: the file, which may not exist yet.
        cost: returns something that grows, such as CPU-seconds.
    """

    def __init__(self, path: Path, cost: Callable[[], float] = float) -> None:
        super().__init__()
        self.path, self.cost = path, cost
        self.times, self.costs, self.ended = list[float](), list[float](), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.01):
            lines = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
            if lines > len(self.times):
                self.costs += [self.cost()] * (lines - len(self.times))
                self.times += [time.perf_counter()] * (lines - len(self.times))

    def __enter__(self) -> StepClock:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()
