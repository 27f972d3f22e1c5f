"""What each change of speed in `agent_rl/cpu` gains: steps with it switched off among steps with all of them.

One run with the quickstart's batch of 128 trajectories: a file switches one change off for one step, and every round
has a step for each, in another order, so that other load of the machine meets all of them. A change stays in the
package while the steps without it take at least `WORTH` of the others' CPU time, or of their seconds: CPU-seconds are
those of all processes of the run.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil
import pytest

from agent_rl.launch.process import NEW_METRICS
from benchmarks.test_step import ROOT, SAMPLES, model, step_command, write_rows
from tests.e2e.training import run_alone

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

__all__ = ["model"]

PROMPTS, SKIPPED = 16, 2
ROUNDS = int(os.environ.get("ROUNDS", "7"))
WORTH = 1.03
CHANGES = (
    "replay_buffer_polling",
    "token_log_probs",
    "loop_construction",
    "trajectory_puts",
    "decode",
    "sample",
    "fetched_tensors",
    "sorted_micro_batches",
)


def cpu_seconds() -> dict[int, float]:
    """CPU-seconds so far of every process below this one."""
    used = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used[process.pid] = sum(process.cpu_times()[:2])
    return used


class Steps(threading.Thread):
    """Switches one change off for each step, and notes what the step took."""

    def __init__(self, metrics: Path, off: Path, schedule: list[str]) -> None:
        super().__init__()
        self.metrics, self.off, self.schedule = metrics, off, schedule
        self.took: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """CPU-seconds and seconds of each step without a change ("": with all)."""
        self.ended = threading.Event()

    def run(self) -> None:
        logged, before = 0, dict[int, float]()
        started = time.monotonic()
        while not self.ended.wait(0.01):
            lines = self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0
            if lines == logged:
                continue
            now, used = time.monotonic(), cpu_seconds()
            for path in self.off.iterdir():
                path.unlink()
            if lines < len(self.schedule) and self.schedule[lines]:
                (self.off / self.schedule[lines]).touch()
            if lines == logged + 1 > SKIPPED:
                cpu = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items())
                self.took[self.schedule[logged]].append((cpu, now - started))
            logged, before, started = lines, used, now


def test_each_change_is_worth_its_lines(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order, schedule = random.Random(0), [""] * SKIPPED
    for _ in range(ROUNDS):
        schedule += order.sample(["", *CHANGES], len(CHANGES) + 1)
    custom, off = tmp_path / "custom", tmp_path / "off"
    custom.mkdir()
    off.mkdir()
    shutil.copy(ROOT / "tests/support/bench/switches.py", custom / "sitecustomize.py")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("ABLATION_FOLDER", str(off))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(custom), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    write_rows(tmp_path, PROMPTS, len(schedule), 0.0)
    steps = Steps(tmp_path / NEW_METRICS, off, schedule)
    steps.start()
    try:
        run_alone(step_command(tmp_path, model, PROMPTS, len(schedule)), tmp_path, timeout_s=3000)
    finally:
        steps.ended.set()
        steps.join()
    cpu, seconds = (median(each[index] for each in steps.took[""]) for index in (0, 1))
    with capsys.disabled():
        print(f"\na step of {PROMPTS * SAMPLES} trajectories, {ROUNDS} rounds: {cpu:.2f} CPU-seconds, {seconds:.2f} s")
        print("without                    CPU   share  seconds   share")
        ratios = {}
        for name in CHANGES:
            own, took = (median(each[index] for each in steps.took[name]) for index in (0, 1))
            ratios[name] = max(own / cpu, took / seconds)
            print(f"{name:24} {own:6.2f} {own / cpu:7.3f} {took:8.2f} {took / seconds:7.3f}")
    assert {name: ratio for name, ratio in ratios.items() if ratio < WORTH} == {}
