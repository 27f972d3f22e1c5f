"""The summary of an evaluation, as JSON data and as a table, with confidence intervals over the rows.

The table has only values that do not depend on the machine; seconds are in the summary.
Episodes without a score are counted, but not averaged. `write_difficulty` writes each row's share of wrong samples.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.data import write_parquet
from agent_rl.evaluation.ledger import Record
from agent_rl.trajectory.estimates import LEVEL, Estimate, estimate_mean, estimate_rate

__all__ = [
    "SOLVED",
    "cell",
    "is_solved",
    "ks",
    "pass_at_k",
    "summarize",
    "table",
    "write_difficulty",
]

SOLVED = 1.0
"""Correctness from which a sample counts as right."""

SHOWN = ("turns", "tool_calls", "tool_errors", "malformed_rate", "answered")
"""Metrics of the table; the summary has all."""


def is_solved(record: Record) -> bool:
    """Whether a sample counts as right."""
    return record.components.get("correctness", 0.0) >= SOLVED


def summarize(records: Iterable[Record], *, rows: int, n: int) -> dict[str, Any]:
    """The summary as JSON data.

    Args:
        records: of the episodes that are done, in any order.
        rows: number of rows of the data.
        n: samples for each row.
    """
    found = sorted(records, key=lambda record: (record.row, record.sample))
    sources = sorted({record.data_source for record in found})
    groups = {source: [record for record in found if record.data_source == source] for source in sources}
    errors = Counter(record.error for record in found if record.error is not None)
    return {
        "rows": rows,
        "n": n,
        "level_of_confidence": LEVEL,
        "all": _group(found, n),
        "data_sources": {source: _group(group, n) for source, group in groups.items()} if len(groups) > 1 else {},
        "missing": rows * n - len(found),
        "unscored": dict(errors.most_common(10)),
    }


def _group(records: Sequence[Record], n: int) -> dict[str, Any]:
    scored = [record for record in records if record.error is None]
    rows = [list(row) for _, row in groupby(scored, attrgetter("row"))]

    def named(field: str) -> dict[str, Any]:
        """Each name of the records' field with its estimate over the rows."""
        values = [[getattr(record, field) for record in row] for row in rows]
        names = sorted({name for row in values for each in row for name in each})
        return {name: estimate(name)([[each[name] for each in row] for row in values]).plain() for name in names}

    def estimate(name: str) -> Callable[[Sequence[Sequence[float]]], Estimate]:
        return estimate_rate if name == "answered" or name.startswith("stop_") else estimate_mean

    return {
        "scored": len(scored),
        "unscored": len(records) - len(scored),
        "pass": {str(k): _pass(rows, k) for k in ks(n)},
        "reward": estimate_mean([[record.reward for record in row] for row in rows]).plain(),
        "components": named("components"),
        "metrics": named("metrics"),
        "tokens": {
            name: sum(record.tokens.get(name, 0) for record in records) for name in ("input", "sampled", "requests")
        },
        "seconds": round(sum(record.seconds for record in records), 3),
    }


def _pass(rows: Sequence[Sequence[Record]], k: int) -> dict[str, Any]:
    """Over the rows that have as many scored samples."""
    values = [[pass_at_k(len(row), sum(map(is_solved, row)), k)] for row in rows if len(row) >= k]
    return estimate_rate(values).plain()


def table(summary: dict[str, Any], title: str) -> Table:
    """The summary for a terminal: a column for all, and one for each data source where there are several."""
    columns = {"all": summary["all"], **summary["data_sources"]}
    shown = Table(title=Text(title), title_justify="left")
    shown.add_column("")
    for name in columns:
        shown.add_column(Text(name), justify="right")

    def add(label: str, cells: Iterable[str]) -> None:
        shown.add_row(Text(label), *map(Text, cells))

    groups = list(columns.values())
    for k in summary["all"]["pass"]:
        add(f"pass@{k}", [cell(group["pass"][k]) for group in groups])
    add("reward", [cell(group["reward"]) for group in groups])
    for name in summary["all"]["components"]:
        add(f"  {name}", [cell(group["components"].get(name)) for group in groups])
    for name in SHOWN:
        add(name.replace("_", " "), [cell(group["metrics"].get(name)) for group in groups])
    for name, label in (("sampled", "sampled tokens"), ("input", "input tokens"), ("requests", "requests")):
        add(f"{label} an episode", [_each(group, name) for group in groups])
    add("episodes scored", [f"{group['scored']:,}" for group in groups])
    add("episodes unscored", [f"{group['unscored']:,}" for group in groups])
    return shown


def cell(estimate: dict[str, Any] | None) -> str:
    """An estimate as text; "-" where there is none."""
    if not estimate or estimate["mean"] is None:
        return "-"
    if estimate["low"] is None:
        return f"{estimate['mean']:.3f}"
    return f"{estimate['mean']:.3f}  [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _each(column: dict[str, Any], name: str) -> str:
    episodes = column["scored"] + column["unscored"]
    return f"{column['tokens'][name] / episodes:,.1f}" if episodes else "-"


def write_difficulty(records: Iterable[Record], rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> int:
    """Write the rows with `extra_info.difficulty`: 0 where every sample is right, 1 where none is.

    Args:
        records: of the evaluation's episodes.
        rows: that were evaluated, in their order; one without a scored sample keeps what it has.
        path: parquet file to write.

    Returns:
        Number of rows with a new difficulty.

    Raises:
        ConfigError: the file cannot be written.
    """
    solved: dict[int, list[bool]] = {}
    for record in records:
        if record.error is None:
            solved.setdefault(record.row, []).append(is_solved(record))
    written = []
    for number, row in enumerate(rows):
        samples = solved.get(number)
        more = {} if samples is None else {"difficulty": 1 - sum(samples) / len(samples)}
        written.append({**row, "extra_info": {**row["extra_info"], **more}})
    write_parquet(written, path)
    return len(solved)


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The probability that one of `k` of the row's samples is right: the unbiased estimate of Chen et al., 2021.

    Raises:
        ValueError: there are fewer than `k` samples.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"{right} right of {samples} samples, {k} of them")
    return 1.0 - math.prod((samples - right - i) / (samples - i) for i in range(k))


def ks(n: int) -> list[int]:
    """For which k a table shows pass@k: the powers of two up to `n`, and `n`."""
    return sorted({2**i for i in range(n.bit_length())} | {n})
