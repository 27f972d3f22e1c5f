"""Data of the user's own through two steps of the real trainer."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.data import arithmetic
from agent_rl.trajectory import trace
from tests.docs.pages import commands
from tests.e2e.training import train

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

ROOT = Path(__file__).parents[2]
PAGE = "docs/guides/data.md"


def test_a_csv_with_two_columns_becomes_a_training_run_with_two_commands(tiny_model: Path, tmp_path: Path) -> None:
    """The commands are the guide's; only folders and the size of the run differ."""
    with open(tmp_path / "problems.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        writer.writerows((each.question, each.answer) for each in arithmetic.generate(0, 24))
    convert, learn = [each.words for each in commands(PAGE) if "problems" in str(each)]
    assert convert[:3] == ("agent-rl", "data", "convert")
    assert learn[:3] == ("agent-rl", "train", "gsm8k_calculator")
    command = [sys.executable, "-m", "agent_rl.cli.main", *convert[1:]]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60, capture_output=True)
    named = dict(word.split("=", 1) for word in learn[3:])
    files = {name: tmp_path / named.pop(f"data.{name}_files") for name in ("train", "val")}
    for name, path in files.items():
        path.rename(tmp_path / f"{'train' if name == 'train' else 'test'}.parquet")
    assert named == {"agent_rl.reward.correctness.scorer": "math"}
    logged = train(
        tmp_path, tiny_model, **{key.replace(".", "__"): value for key, value in OWN.items() | named.items()}
    )
    assert sorted(logged) == [1, 2]
    found = list(trace.read(tmp_path / "trace.jsonl"))
    assert {each.data_source for each in found} == {"own/from_file"}
    assert all(each.score is not None for each in found)


OWN = {"reward.reward_manager.name": "trajectory", "reward.custom_reward_function.path": "null"}
