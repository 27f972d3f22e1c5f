"""The report on data files: a table and findings for the terminal, and one page for a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from agent_rl.data.check import DataReport, Statistics

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["findings", "page", "table"]

MOST_VALUES = 30
"""Values of a label that are shown; the others are counted together."""
OTHERS = "(others)"


def table(report: DataReport) -> Table:
    """What is in the files, by data source, ability and difficulty."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=f"{_rows(sum(report.rows))} in {len(report.files)} file{'s' * (len(report.files) > 1)}")
    made.add_column("", style="bold")
    for name in ("rows", f"mean {report.unit}", "longest"):
        made.add_column(name, justify="right")
    for label, values in report.labels.items():
        made.add_section()
        for value, its in _most(values).items():
            made.add_row(Text(f"{label} {value}"), f"{its.rows:,}", f"{its.mean:,.0f}", f"{its.longest:,}")
    made.caption = f"{report.graded:,} ground truths were scored"
    return made


def findings(report: DataReport) -> Iterator[Text]:
    """What is wrong, the most frequent first: how many rows, and the first of them."""
    from rich.text import Text

    for kind, count in report.counts.most_common():
        is_error = kind in report.errors
        place, finding = report.shown[kind][0]
        head = (f"{'error' if is_error else 'look '} {kind}, {_rows(count)}: ", "red" if is_error else "yellow")
        yield Text.assemble(head, f"{place}: {finding.text}. {finding.remedy}")


def page(report: DataReport) -> str:
    """A page of HTML with histograms of the lengths, and with the findings and their examples."""
    files = "".join(
        f"<tr><td>{escape(path)}<td class=n>{rows:,}" for path, rows in zip(report.files, report.rows, strict=True)
    )
    findings = "".join(_finding(report, kind, count) for kind, count in report.counts.most_common())
    charts = "".join(
        f"<h2>{escape(label)}</h2><div class=charts>"
        + "".join(_histogram(value, its, report.unit) for value, its in _most(values).items())
        + "</div>"
        for label, values in report.labels.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Data: {sum(report.rows):,} rows</title>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style><main><h1>{sum(report.rows):,} rows</h1>"
        f"<table><tr><th>file<th class=n>rows{files}</table>"
        f"<h2>Findings</h2>{findings or '<p>Nothing is wrong.'}"
        f"<p>{report.graded:,} ground truths were scored as answers of their own rows, and as answers of others."
        f"{charts}</main>\n"
    )


def _finding(report: DataReport, kind: str, count: int) -> str:
    examples = "".join(
        f"<li><b>{escape(place)}</b>: {escape(one.text)}. {escape(one.remedy)}" for place, one in report.shown[kind]
    )
    level = "error" if kind in report.errors else "look"
    return f"<details open class={level}><summary>{escape(kind)}: {_rows(count)}</summary><ul>{examples}</ul></details>"


def _histogram(value: str, its: Statistics, unit: str) -> str:
    """Rows by length, one bar for each interval; lengths grow by the same factor from bar to bar."""
    ends = sorted(its.lengths)
    highest, width = max(its.lengths.values()), min(24.0, 260 / len(ends))
    bars = ""
    for at, end in enumerate(ends):
        count = its.lengths[end]
        height = 96 * count / highest
        bars += (
            f'<rect x="{at * width:.1f}" width="{max(width - 1, 1):.1f}" y="{100 - height:.1f}" height="{height:.1f}">'
            f"<title>{end:,} {unit} or more: {_rows(count)}</title></rect>"
        )
    return (
        f"<figure><figcaption>{escape(value)}: {_rows(its.rows)}</figcaption>"
        f'<svg viewBox="0 0 260 100" role=img aria-label="lengths of {escape(value, quote=True)}">{bars}</svg>'
        f"<p>{ends[0]:,} to {its.longest:,} {unit}, mean {its.mean:,.0f}</p></figure>"
    )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _most(values: dict[str, Statistics]) -> dict[str, Statistics]:
    """The values with the most rows, in order, and the others as one."""
    ordered = dict(sorted(values.items(), key=lambda each: (-each[1].rows, each[0])))
    kept = dict(list(ordered.items())[:MOST_VALUES])
    rest = list(ordered.values())[MOST_VALUES:]
    if rest:
        lengths: Counter[int] = sum((each.lengths for each in rest), Counter())
        rows, total = sum(each.rows for each in rest), sum(each.total for each in rest)
        kept[f"{OTHERS[:-1]}: {len(rest)})"] = Statistics(rows, total, max(each.longest for each in rest), lengths)
    return kept


_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:0}main{max-width:60rem;margin:auto;"
    "padding:1rem}table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "overflow-wrap:anywhere}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}.charts{display:grid;gap:1rem;grid-template-columns:"
    "repeat(auto-fill,minmax(15rem,1fr))}figure{margin:0}figcaption{font-weight:600;overflow-wrap:anywhere}"
    "figure p{margin:0;opacity:.8}svg{width:100%;border-bottom:1px solid}rect{fill:#3b82c4}"
    "li{overflow-wrap:anywhere}details{border-left:4px solid #b58100;padding-left:.8rem;margin:.6rem 0}"
    ".error{border-color:#c43b3b}summary{font-weight:600}"
)
