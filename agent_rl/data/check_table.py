"""The report on data files in the terminal: a table by label, and the findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent_rl.data.check import DataReport

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["findings", "table"]

MOST_VALUES = 30
"""Values of a label that are shown; the others are counted together."""


def table(report: DataReport) -> Table:
    """What is in the files, by data source, ability and difficulty."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=f"{_rows(sum(report.rows))} in {len(report.files)} file{'s' * (len(report.files) > 1)}")
    made.add_column("", style="bold")
    for name in ("rows", f"mean {report.unit}", "median", "95 %", "longest"):
        made.add_column(name, justify="right")
    for label, values in report.labels().items():
        made.add_section()
        for value, rows, *lengths in values[:MOST_VALUES].itertuples():
            made.add_row(Text(f"{label} {value}"), f"{rows:,}", *(f"{length:,.0f}" for length in lengths))
        if len(others := values[MOST_VALUES:]):
            counts = f"{others.rows.sum():,}", "", "", "", f"{others.longest.max():,}"
            made.add_row(f"{label} (others: {len(others)})", *counts)
    made.caption = f"{report.graded:,} ground truths were scored"
    return made


def findings(report: DataReport) -> Iterator[Text]:
    """What is wrong, the most frequent first: how many rows, the first of them, and where a few more are."""
    from rich.text import Text

    for kind, count in report.counts.most_common():
        is_error = kind in report.errors
        (place, finding), *others = report.shown[kind]
        more = f". Also {'; '.join(other for other, _ in others)}" if others else ""
        head = (f"{'error' if is_error else 'look '} {kind}, {_rows(count)}: ", "red" if is_error else "yellow")
        yield Text.assemble(head, f"{place}: {finding.text}. {finding.remedy}{more}")


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
