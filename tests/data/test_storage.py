"""Rows in parquet: they come back as they were made, and every file has one schema."""

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.data import RowWriter, check_file, read_parquet, storage, unpacked, write_parquet
from agent_rl.errors import ConfigError
from tests.data.test_rows import row

DIFFERENT = [
    row(0, tools_kwargs={"search": {"create_kwargs": {"index": "wiki", "filter": None}}}, tool_selection=["search"]),
    row("b", tools_kwargs={"python": {}}, extra_info={"level": "hard", "notes": {}}),
    row(2**70, ground_truth=["7", "seven"], extra_info={"level": 3, "user": {"replies": ["yes"]}}),
    row(3, ground_truth={"target": []}, extra_info={"level": None, "difficulty": 0.5}),
    row(4, question="<image>?", images=[b"png", "b.png"][:1]),
    row(5, ground_truth=None, style="model", rm_prompt="?"),
]


def test_rows_of_every_kind_come_back_as_they_were_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "split=train" / "rows.parquet"
    before = copy.deepcopy(DIFFERENT)
    write_parquet(DIFFERENT, path)
    found = read_parquet(path)
    assert found[4].pop("images") == [{"bytes": b"png", "path": None}]
    assert before[4].pop("images") == [{"bytes": b"png"}]
    assert found == before
    check_file(str(path))
    assert pq.read_schema(path).equals(storage.row_schema())
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.parquet"]


def test_a_row_of_another_writer_is_unchanged() -> None:
    typed = {"extra_info": {"index": 3, "answer": None}, "reward_model": {"ground_truth": "7"}}
    assert unpacked(typed) == typed


def test_batches_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BATCH", 2)
    with RowWriter(tmp_path / "rows.parquet") as writer:
        for index in range(5):
            writer.write(row(index))
    assert [each["extra_info"]["index"] for each in read_parquet(tmp_path / "rows.parquet")] == [0, 1, 2, 3, 4]
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 3


@pytest.mark.parametrize(
    ("bad", "key", "problem"),
    [
        (row(0, extra_info={"time": {1j}}), "row 1, column extra_info.time", "JSON cannot represent"),
        (row(0, extra_info={"share": float("inf")}), "row 1, column extra_info.share", "JSON cannot represent"),
        (row(0, extra_info={"note": "\ud800"}), "row 1, column extra_info.note", "JSON cannot represent"),
        (row(0) | {"images": [{"bytes": 3}], "prompt": [{"role": "user", "content": "<image>"}]}, "row 1", "parquet"),
        (row(0) | {"note": "x"}, "row 1, column note", "not a column of the row contract"),
        (row(0) | {"ability": 3}, "row 1, column ability", "3"),
    ],
)
def test_a_failed_write_names_the_row_and_leaves_the_old_file(
    tmp_path: Path, bad: dict[str, Any], key: str, problem: str
) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet([row(7)], path)
    with pytest.raises(ConfigError) as caught:
        write_parquet([row(0), bad, row(1)], path)
    assert caught.value.key == f"{path}, {key}"
    assert problem in caught.value.problem
    assert read_parquet(path) == [row(7)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


def test_no_rows_and_no_place_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no rows"):
        write_parquet([], tmp_path / "rows.parquet")
    write_parquet([row()], tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"rows\.parquet/x: it cannot be written: "):
        write_parquet([row()], tmp_path / "rows.parquet" / "x")


def test_check_file_finds_what_another_writer_left(tmp_path: Path) -> None:
    kwargs = [{"search": {"create_kwargs": {"k": 1}}}, {"python": {"create_kwargs": {"k": 1}}}]
    rows = [row(i, tools_kwargs=each) for i, each in enumerate(kwargs)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "typed.parquet")
    check_file(str(tmp_path / "typed.parquet"))  # the gaps of a typed table are no mistake
    pq.write_table(pa.table({"question": ["3 + 4?"]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"other.parquet, row 0, column data_source: the column is missing"):
        check_file(str(tmp_path / "other.parquet"))
