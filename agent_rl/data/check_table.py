"""Prints the report on data files in the terminal: a table by label, and the findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent_rl.data.check import DataReport

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["findings", "table"]

MOST_VALUES = 30
"""Maximum number of values shown per label; the others share one line."""


def table(report: DataReport) -> Table:
    """Return a table of the files' rows by data source, ability and difficulty."""
    from rich.table import Table
    from rich.text import Text

    result = Table(title=f"{_rows(sum(report.rows))} in {len(report.files)} file{'s' * (len(report.files) > 1)}")
    result.add_column("", style="bold")
    for name in ("rows", f"mean {report.unit}", "median", "95th percentile", "longest"):
        result.add_column(name, justify="right")
    for label, values in report.labels().items():
        result.add_section()
        for value, rows, *lengths in values[:MOST_VALUES].itertuples():
            result.add_row(Text(f"{label} {value}"), f"{rows:,}", *(f"{length:,.0f}" for length in lengths))
        if len(others := values[MOST_VALUES:]):
            counts = f"{others.rows.sum():,}", "", "", "", f"{others.longest.max():,}"
            result.add_row(f"{label} (others: {len(others)})", *counts)
    result.caption = f"{report.graded:,} ground truths were scored"
    return result


def findings(report: DataReport) -> Iterator[Text]:
    """Yield a line per kind of finding, the most frequent first, with the number of rows and the first locations."""
    from rich.text import Text

    for kind, count in report.counts.most_common():
        is_error = kind in report.errors
        (place, finding), *others = report.shown[kind]
        more = f". Also {'; '.join(other for other, _ in others)}" if others else ""
        head = (f"{'error' if is_error else 'note '} {kind}, {_rows(count)}: ", "red" if is_error else "yellow")
        yield Text.assemble(head, f"{place}: {finding.text}. {finding.remedy.rstrip('.')}{more}")


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
