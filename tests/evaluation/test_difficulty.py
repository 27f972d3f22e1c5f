"""The share of wrong samples of each row, as a column of a new file."""

from __future__ import annotations

from pathlib import Path

from agent_rl.data import arithmetic, iterate_rows
from agent_rl.evaluation.difficulty import write_difficulty
from agent_rl.evaluation.ledger import Record


def record(row: int, sample: int, correctness: float, error: str | None = None) -> Record:
    return Record(row, sample, "agent_rl/arithmetic", error, correctness, {"correctness": correctness})


def test_each_row_gets_the_share_of_its_wrong_samples(tmp_path: Path) -> None:
    rows = [arithmetic.to_row(each, "train", i) for i, each in enumerate(arithmetic.generate(0, 4))]
    rows[3]["extra_info"]["difficulty"] = 0.5
    records = [record(0, 0, 1), record(0, 1, 1), record(1, 0, 0), record(1, 1, 0.9), record(2, 0, 1), record(2, 1, 0)]
    records += [record(2, 2, 0, "the engine failed"), record(3, 0, 0, "the engine failed")]
    assert write_difficulty(records, rows, tmp_path / "rows.parquet") == 3
    written = [found.row for found in iterate_rows(str(tmp_path / "rows.parquet"))]
    assert [row["extra_info"]["difficulty"] for row in written] == [0.0, 1.0, 0.5, 0.5]
    assert [row["prompt"] for row in written] == [row["prompt"] for row in rows]
