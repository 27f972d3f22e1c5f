"""Whether a query returns the same rows as the right query, on the row's own tables in SQLite.

The query is the last ```sql block or `<answer>` tag, else the whole text. The ground truth is the right query, or
`{"sql": ..., "tables": {...}}`, where a list of queries means that any of them is right; the tables may also be in
`extra_info["tables"]`. A table is a list of `{column: value}`, or `{"columns": [...], "rows": [[...], ...]}`; `tables`
may also be an SQL script that creates them. Instead of `tables`, `database` may give the path of an SQLite file, which
is opened read-only.

Rows are compared as a multiset, or in order if the right query sorts; columns by position; floats to 10^-6. A query
runs in a process of its own, where the kernel limits its time and memory: it can only read, for at most two processor
seconds, and give at most 10,000 rows and 16 million characters. Its tables are made again for every comparison.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.rewards.scorers.extraction import tagged_block
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.sandbox import in_a_place
from agent_rl.tools.builtin._sql import pool

__all__ = ["extract_query", "score_sql_match"]

QUERY_S = 2.0
"""Processor seconds of one query."""
MEMORY_MB = 512
"""MiB that the tables and one query may take."""
_MAX_TEXT = 100_000
_MAX_QUERY = 10_000
_MAX_ROWS = 10_000
_SORTED = re.compile(r"\border\s+by\b(?![^()]*\))", re.IGNORECASE)


@built_in("sql_match", "agent_rl/text_to_sql", "spider*", "bird*", "skyrl_sql*", "sql_eval*")
def score_sql_match(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 if both queries return the same rows, else 0.0.

    Raises:
        UnscoredError: the tables cannot be created, the right query fails, or the machine is too busy.
    """
    truths, tables = _truth(ground_truth, extra_info)
    try:
        wanted = [(truth, _rows(tables, truth)) for truth in truths]
    except (ToolError, ToolTimeoutError, ValueError, TypeError) as error:
        raise unusable(ground_truth, f"a query that runs on the row's tables ({error})") from None
    query = extract_query(solution)
    if not query:
        return 0.0
    try:
        made = _rows(tables, query)
    except (ToolError, ToolTimeoutError):  # the answer's own mistake
        return 0.0
    return float(any(_is_same(made, rows, in_order=bool(_SORTED.search(truth))) for truth, rows in wanted))


def extract_query(solution: str) -> str:
    """The query in a response; "" for one that is too long."""
    query = tagged_block(solution[-_MAX_TEXT:], "sql", "sqlite").strip().rstrip(";").strip()
    return query if len(query) <= _MAX_QUERY else ""


def _is_same(made: list[list[Any]], wanted: list[list[Any]], *, in_order: bool) -> bool:
    collect = list if in_order else Counter
    return bool(collect(map(_key, made)) == collect(map(_key, wanted)))


def _truth(ground_truth: Any, extra_info: Mapping[str, Any]) -> tuple[list[str], Any]:
    value = ground_truth
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise unusable(ground_truth, "a query") from None
    own = value if isinstance(value, Mapping) else {"sql": value}
    sql, tables, path = (own.get(key) or extra_info.get(key) for key in ("sql", "tables", "database"))
    if tables is None and isinstance(path, str):
        tables = Path(path)
    queries = [sql] if isinstance(sql, str) else as_data(sql)
    right = isinstance(queries, list) and queries and all(isinstance(each, str) and each.strip() for each in queries)
    if not right or not isinstance(tables, Mapping | str | Path):
        raise unusable(ground_truth, "a query with its tables")
    return [each.strip().rstrip(";") for each in queries], tables


def _rows(tables: Mapping[str, Any] | str | Path, query: str) -> list[list[Any]]:
    return in_a_place(lambda: pool.rows(tables, query, timeout_s=QUERY_S, memory_mb=MEMORY_MB, max_rows=_MAX_ROWS))


def _key(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row for comparing: 1 and 1.0 are the same, floats are rounded to six decimals."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):  # bytes
        return value["bytes"], "bytes"
    if isinstance(value, float) and math.isfinite(value):
        rounded = round(value, 6)
        return int(rounded) if rounded == int(rounded) else rounded
    return value
