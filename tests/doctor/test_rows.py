from pathlib import Path

from agent_rl.doctor import rows
from agent_rl.doctor.rows import read_rows


def test_a_file_is_counted_and_its_rows_are_read(parquet: Path) -> None:
    table = read_rows(str(parquet))
    assert (table.count, len(table.rows), table.error) == (12, 12, None)
    assert table.columns["agent_name"] == "string"
    assert table.rows[3]["extra_info"]["index"] == 3


def test_of_a_large_file_the_first_rows(parquet: Path, monkeypatch) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 5)
    table = read_rows(str(parquet))
    assert (table.count, len(table.rows)) == (12, 5)


def test_what_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    assert "no such file" in str(read_rows(str(tmp_path / "none.parquet")).error)
    (tmp_path / "text.parquet").write_text("not parquet at all")
    error = read_rows(str(tmp_path / "text.parquet")).error
    assert error is not None
    assert error.problem.startswith("cannot be read as parquet")
