"""The summary of an evaluation, as JSON data and as a table, with confidence intervals over the rows.

The table contains only values that do not depend on the machine; the summary also contains times in seconds. Episodes
without a score are counted but not averaged. `write_difficulty` writes each row's share of wrong samples.
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

SOLVED = 1.0
"""Minimum correctness of a sample that is considered right."""

SHOWN = ("turns", "tool_calls", "tool_errors", "malformed_rate", "answered")
"""Metrics shown in the table; the summary contains all metrics."""


def is_solved(record: Record) -> bool:
    """Whether a sample is considered right."""
    return record.components.get("correctness", 0.0) >= SOLVED


def summarize(records: Iterable[Record], *, rows: int, n: int) -> dict[str, Any]:
    """Return the summary of an evaluation as JSON data.

    Args:
        records: records of the finished episodes, in any order.
        rows: number of rows in the data.
        n: samples per row.
    """
    episodes = sorted(records, key=lambda record: (record.row, record.sample))
    sources = sorted({record.data_source for record in episodes})
    groups = {source: [record for record in episodes if record.data_source == source] for source in sources}
    errors = Counter(record.error for record in episodes if record.error is not None)
    return {
        "rows": rows,
        "n": n,
        "level_of_confidence": LEVEL,
        "all": _group(episodes, n),
        "data_sources": {source: _group(group, n) for source, group in groups.items()} if len(groups) > 1 else {},
        "missing": rows * n - len(episodes),
        "unscored": dict(errors.most_common(10)),
    }


def _group(records: Sequence[Record], n: int) -> dict[str, Any]:
    scored = [record for record in records if record.error is None]
    rows = [list(row) for _, row in groupby(scored, attrgetter("row"))]

    def by_name(field: str) -> dict[str, Any]:
        """Return an estimate for each name in the mapping `field` of the records, over the rows with this name."""
        values = [[getattr(record, field) for record in row] for row in rows]
        names = sorted({name for row in values for sample in row for name in sample})
        return {name: estimate(name)([[s[name] for s in row if name in s] for row in values]).plain() for name in names}

    def estimate(name: str) -> Callable[[Sequence[Sequence[float]]], Estimate]:
        return estimate_rate if name == "answered" or name.startswith("stop_") else estimate_mean

    return {
        "scored": len(scored),
        "unscored": len(records) - len(scored),
        "pass": {
            str(k): estimate_rate(
                [[pass_at_k(len(row), sum(map(is_solved, row)), k)] for row in rows if len(row) >= k]
            ).plain()
            for k in ks(n)
        },
        "reward": estimate_mean([[record.reward for record in row] for row in rows]).plain(),
        "components": by_name("components"),
        "metrics": by_name("metrics"),
        "tokens": {
            name: sum(record.tokens.get(name, 0) for record in records) for name in ("input", "sampled", "requests")
        },
        "seconds": round(sum(record.seconds for record in records), 3),
    }


def table(summary: dict[str, Any], title: str) -> Table:
    """Return the summary as a table with a column for all rows and, if there are several, one for each data source."""
    columns = {"all": summary["all"], **summary["data_sources"]}
    result = Table(title=Text(title), title_justify="left")
    result.add_column("")
    for name in columns:
        result.add_column(Text(name), justify="right")

    def add(label: str, cells: Iterable[str]) -> None:
        result.add_row(Text(label), *map(Text, cells))

    groups = list(columns.values())
    for k in summary["all"]["pass"]:
        add(f"pass@{k}", [cell(group["pass"][k]) for group in groups])
    add("reward", [cell(group["reward"]) for group in groups])
    for name in summary["all"]["components"]:
        add(f"  {name}", [cell(group["components"].get(name)) for group in groups])
    for name in SHOWN:
        add(name.replace("_", " "), [cell(group["metrics"].get(name)) for group in groups])
    for name, label in (("sampled", "sampled tokens"), ("input", "input tokens"), ("requests", "requests")):
        add(f"{label} per episode", [_per_episode(group, name) for group in groups])
    add("episodes scored", [f"{group['scored']:,}" for group in groups])
    add("episodes unscored", [f"{group['unscored']:,}" for group in groups])
    return result


def cell(estimate: dict[str, Any] | None) -> str:
    """Return an estimate as text, or "-" if there is no estimate."""
    if not estimate or estimate["mean"] is None:
        return "-"
    if estimate["low"] is None:
        return f"{estimate['mean']:.3f}"
    return f"{estimate['mean']:.3f}  [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _per_episode(column: dict[str, Any], name: str) -> str:
    episodes = column["scored"] + column["unscored"]
    return f"{column['tokens'][name] / episodes:,.1f}" if episodes else "-"


def write_difficulty(records: Iterable[Record], rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> int:
    """Write the rows with `extra_info.difficulty`: 0 if every sample is right, 1 if every sample is wrong.

    Args:
        records: records of the evaluation's episodes.
        rows: the evaluated rows, in order; a row without a scored sample keeps its difficulty.
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
    updated = []
    for number, row in enumerate(rows):
        samples = solved.get(number)
        more = {} if samples is None else {"difficulty": 1 - sum(samples) / len(samples)}
        updated.append({**row, "extra_info": {**row["extra_info"], **more}})
    write_parquet(updated, path)
    return len(solved)


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the probability that at least one of `k` samples is right (the unbiased estimate of Chen et al., 2021)."""
    return 1.0 - math.prod((samples - right - i) / (samples - i) for i in range(k))


def ks(n: int) -> list[int]:
    """Return the values of k for which a table shows pass@k: the powers of two up to `n`, and `n`."""
    return sorted({2**i for i in range(n.bit_length())} | {n})
