"""The report on data files in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from agent_rl.data.check import DataReport, RowFinding
from agent_rl.data.check_table import findings, table

HOSTILE = '<script>alert("1")</script>[red]'


def report() -> DataReport:
    found = DataReport(["train.parquet"], "tokens", [40])
    found.lengths += [(f"{HOSTILE}{number}", None, None, number * 50) for number in range(40)]
    found.add(0, 3, RowFinding(HOSTILE, HOSTILE, HOSTILE))
    found.add(0, 4, RowFinding("duplicate", "row 3 asks the same", "Keep one", is_error=False))
    return found


def shown(found: DataReport) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(found))
    for finding in findings(found):
        console.print(finding, soft_wrap=True)
    return console.export_text()


def test_many_values_of_a_label_are_shown_together() -> None:
    text = shown(report())
    assert text.count("data_source <script>") == 30
    assert "data_source (others: 10)" in text


def test_a_remedy_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    found = report()
    for row in (5, 6):
        found.add(0, row, RowFinding("agent", "'x' is not registered", "None of the 30 known names is similar."))
    assert "None of the 30 known names is similar. Also train.parquet, row 6" in shown(found)


def test_the_terminal_shows_numbers_the_first_row_of_each_finding_and_where_more_are() -> None:
    found = report()
    found.add(0, 9, RowFinding("duplicate", "row 3 asks the same", "Keep one", is_error=False))
    text = shown(found)
    assert "40 rows in 1 file" in text
    assert f"error {HOSTILE}, 1 row: train.parquet, row 3: {HOSTILE}. {HOSTILE}" in text
    assert "note  duplicate, 2 rows: train.parquet, row 4: row 3 asks the same" in text
    assert "Keep one. Also train.parquet, row 9\n" in text
