"""Data files are read as verl reads them, and joined where verl joins them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.data import write_parquet
from agent_rl.data.files import differences, read_rows
from tests.support.rows import sum_row

ROWS = [sum_row(number) for number in range(12)]


def written(path: Path, text: str | None = None) -> str:
    lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    path.write_text({".jsonl": lines, ".json": json.dumps(ROWS)}.get(path.suffix, "") if text is None else text)
    return str(path)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.json"])
def test_the_rows_of_a_file_are_counted_and_the_first_ones_are_read(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name)
    if name == "rows.parquet":
        write_parquet(ROWS, path)
    file = read_rows(path, 5)
    assert (file.count, len(file.rows), file.error) == (12, 5, None)
    assert file.rows[3]["prompt"][0]["content"] == "3+1?"
    assert file.schema is not None
    assert file.schema.field("agent_name").type == pa.string()


@pytest.mark.parametrize(
    ("name", "text", "problem", "remedy"),
    [
        ("rows.csv", "question,answer", "verl reads .parquet, .json, .jsonl, not .csv", "write_parquet"),
        ("rows", "", "not a file without one of these extensions", "write_parquet"),
        ("rows.parquet", "not parquet at all", "cannot be read as parquet", "again"),
        ("rows.jsonl", '{"a": 1}\n{"a": 2\n', "it is not JSON (Expecting ',' delimiter at column 8)", "per line"),
        ("rows.json", "[1, 2]", "not a JSON object (1)", "column"),
    ],
)
def test_what_verl_cannot_read_says_why_and_what_to_do(
    tmp_path: Path, name: str, text: str, problem: str, remedy: str
) -> None:
    error = read_rows(written(tmp_path / name, text), 5).error
    assert error is not None
    assert problem in error.problem
    assert remedy in error.remedy


STRUCT = {"a": 1, "b": "x"}
PAIRS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"x": 1}, {"x": 1, "y": 2}, True),  # a column that only one has
    ({"x": 1}, {"x": None}, True),
    ({"x": 1}, {"x": 1.5}, False),
    ({"x": 1}, {"x": "1"}, False),
    ({"x": STRUCT}, {"x": {"b": "y", "a": 2}}, True),  # in another order
    ({"x": STRUCT}, {"x": {"a": 1}}, True),
    ({"x": STRUCT}, {"x": {"a": "1"}}, False),
    ({"x": [STRUCT]}, {"x": [{"b": "y", "a": 2}]}, True),
    ({"x": [STRUCT]}, {"x": [{"a": 2}]}, False),
    ({"x": ["a"]}, {"x": []}, True),
]


def pair(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    for name, row in (("one", one), ("other", other)):
        pq.write_table(pa.Table.from_pylist([row]), folder / f"{name}.parquet")
    return [str(folder / f"{name}.parquet") for name in ("one", "other")]


@pytest.mark.trainer
@pytest.mark.parametrize(("one", "other", "joins"), PAIRS)
def test_files_whose_common_columns_have_one_type_join(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], joins: bool
) -> None:
    files = [read_rows(path, 5) for path in pair(tmp_path, one, other)]
    assert bool(differences(*files)) is not joins
    assert joins or differences(*files)[0].startswith("x (")
