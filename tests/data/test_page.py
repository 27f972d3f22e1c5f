"""The report on data files as a page, and in the terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console

from agent_rl.data.check import DataReport, RowFinding, Statistics
from agent_rl.data.page import findings, page, table

HOSTILE = '<script>alert("1")</script>[red]'


def report() -> DataReport:
    found = DataReport(["train.parquet"], "tokens", [40])
    for number in range(40):
        its = found.labels.setdefault("data_source", {}).setdefault(f"{HOSTILE}{number}", Statistics())
        its.add(number * 50)
    found.add(0, 3, RowFinding(HOSTILE, HOSTILE, HOSTILE))
    found.add(0, 4, RowFinding("asked twice", "row 3 asks the same", "Keep one", is_error=False))
    return found


def test_nothing_from_a_row_is_code_on_the_page() -> None:
    text = page(report())
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 30
    assert re.search(r"default-src &#x27;none&#x27;|default-src 'none'", text)
    assert not re.search(r"(src|href)=", text)


def test_many_values_of_a_label_are_shown_together() -> None:
    text = page(report())
    assert text.count("<figure>") == 31
    assert "(others: 10): 10 rows" in text


def test_the_terminal_shows_numbers_and_the_first_row_of_each_finding() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(report()))
    for finding in findings(report()):
        console.print(finding, soft_wrap=True)
    text = console.export_text()
    assert "40 rows in 1 file" in text
    assert f"error {HOSTILE}, 1 row: train.parquet, row 3: {HOSTILE}. {HOSTILE}" in text
    assert "look  asked twice, 1 row: train.parquet, row 4: row 3 asks the same. Keep one" in text
