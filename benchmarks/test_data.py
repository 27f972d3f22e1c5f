"""A million rows of a user's file: converted, checked and written, with their memory and what each row costs.

Each step is a process of its own, started as a user starts it; its CPU time and its largest memory are those that the
kernel counts for it. The cost of a row is compared between files of 10,000, 100,000 and 1,000,000 rows.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[1]
SIZES = (10_000, 100_000, 1_000_000)
MOST_MIB = 2_048
MOST_GROWTH = 1.25
"""Of the cost of a row, from the smallest file on which it is measured to the largest."""


def problems(path: Path, count: int) -> None:
    draw = random.Random(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "question", "answer"))
        for number in range(count):
            one, other, third = (draw.randrange(10**6) for _ in range(3))
            story = f"A farm has {one} apples, sells {other} on day {number} and buys {third} in shop {number % 977}."
            writer.writerow((number, f"{story} How many apples are there now?", one - other + third))


def cost(*words: str, folder: Path) -> tuple[float, float]:
    """CPU-seconds and MiB of a process."""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, stdout=log, stderr=log, env={**os.environ, "COLUMNS": "100"}
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "log").read_text()[-2000:]
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def test_a_million_rows(tmp_path: Path) -> None:
    convert, check = str(ROOT / "data_preprocess/from_file.py"), str(ROOT / "data_preprocess/check_data.py")
    scorer = ["--set", "agent_rl.reward.correctness.scorer=gsm8k"]
    by_step: dict[str, list[float]] = {"convert": [], "check": []}
    print(f"\n{'rows':>10} {'step':>8} {'CPU s':>8} {'us a row':>9} {'MiB':>6}")
    for size in SIZES:
        folder = tmp_path / str(size)
        folder.mkdir()
        problems(folder / "problems.csv", size)
        steps = {
            "convert": [convert, "--input", "problems.csv", "--prompt", "question", "--answer", "answer", "--id", "id",
                        "--local_save_dir", "."],
            "check": [check, "train.parquet", "test.parquet", *scorer, "--fix", "good.parquet"],
        }  # fmt: skip
        for name, words in steps.items():
            seconds, mib = cost(*words, folder=folder)
            by_step[name].append(seconds / size * 1e6)
            print(f"{size:>10,} {name:>8} {seconds:8.1f} {by_step[name][-1]:9.1f} {mib:6.0f}", flush=True)
            assert mib < MOST_MIB
    for name, costs in by_step.items():
        assert costs[-1] < MOST_GROWTH * costs[0], name
