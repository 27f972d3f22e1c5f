"""Data of the user's own, and all data sets in one file, through two steps of the real trainer."""

from __future__ import annotations

import csv
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import (
    arithmetic,
    code,
    gsm8k,
    math_choice,
    math_dataset,
    preferences,
    read_parquet,
    search_qa,
    text_to_sql,
    tool_calls,
    write_parquet,
)
from agent_rl.data.sources import read_raw
from agent_rl.trajectory import trace
from tests.data.real import shared
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


NOW = datetime(2025, 1, 15, 12)
OWN = {"reward.reward_manager.name": "trajectory", "reward.custom_reward_function.path": "null"}


def test_all_data_sets_in_one_file_train(tiny_model: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as database:
        database.execute("CREATE TABLE orders (id INTEGER)")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "How many?", "query": "SELECT count(*) FROM orders", "db_id": "shop"}')
    sql = partial(text_to_sql.to_row, databases=tmp_path, now=NOW, tool="sql")
    pairs = partial(preferences.to_row, data_source="ScalerLab/JudgeBench")
    makers: Mapping[str, Any] = {
        "gsm8k/train.jsonl": gsm8k.to_row,
        "math/math500.jsonl": math_dataset.to_row,
        "math/mathqa.jsonl": math_choice.to_row,
        "code/HumanEval.jsonl.gz": code.to_row,
        "qa/nq_open_dev.jsonl": search_qa.to_row,
        str(questions): sql,
        "tools/BFCL_v4_irrelevance.json": tool_calls.to_row,
        "preferences/judgebench_gpt4o.jsonl": pairs,
    }
    rows = [
        min(
            (to_row(raw.value, "train", 0, agent_name="react_agent") for raw in islice(read_raw(shared(name)), 15)),
            key=length,
        )
        for name, to_row in makers.items()
    ]
    write_parquet(rows[:7], tmp_path / "train.parquet")
    write_parquet(rows[7:], tmp_path / "test.parquet")
    assert len(read_parquet(tmp_path / "train.parquet")) == 7
    sizes = {"data.max_prompt_length": 3500}
    logged = train(tmp_path, tiny_model, **{key.replace(".", "__"): value for key, value in (OWN | sizes).items()})
    assert sorted(logged) == [1, 2]
    found = list(trace.read(tmp_path / "trace.jsonl"))
    assert {each.data_source for each in found} >= {row["data_source"] for row in rows[:7]}
    assert {each.error for each in found} == {None}


def length(row: Mapping[str, Any]) -> int:
    return len(str(row["prompt"]))
