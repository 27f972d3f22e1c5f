"""Scores an SQL query by its result: 1.0 if it returns the same rows as the right query, on tables in SQLite.

The query is the last ```sql block or `<answer>` tag, else the whole text. The ground truth is the right query, or
`{"sql": ..., "tables": {...}}`, where a list of queries means that each of them is right; the tables may also be in
`extra_info["tables"]`. A table is a list of `{column: value}`, or `{"columns": [...], "rows": [[...], ...]}`; `tables`
may also be an SQL script that creates the tables. Instead of `tables`, `database` may be the path of an SQLite file,
which is opened read-only.

Rows are compared as a multiset, or in order if the right query sorts them. Columns are compared by position, and floats
after rounding to six decimals. A query runs on new tables, in a process whose time and memory the kernel limits: the
query can only read, takes at most two seconds of CPU time, and returns at most 10,000 rows and 16 million characters.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.rewards.scorers.extraction import tagged_block
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.sandbox import in_a_place
from agent_rl.tools.builtin._sql import pool

QUERY_S = 2.0
"""CPU time limit for one query, in seconds."""
MEMORY_MB = 512
"""Memory limit for the tables and one query together, in MiB."""
_MAX_TEXT = 100_000
_MAX_QUERY = 10_000
_MAX_ROWS = 10_000
_SORTED = re.compile(r"\border\s+by\b", re.IGNORECASE)
_TEXT, _INNERMOST = re.compile(r"'[^']*'|\"[^\"]*\""), re.compile(r"\([^()]*\)")


@built_in("sql_match", "agent_rl/text_to_sql", "spider*", "bird*", "skyrl_sql*", "sql_eval*")
def score_sql_match(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 if both queries return the same rows, else 0.0.

    Raises:
        UnscoredError: the tables cannot be created, the right query fails, or the machine is too busy.
    """
    truths, tables = _truth(ground_truth, extra_info)
    try:
        right_results = [(truth, _rows(tables, truth)) for truth in truths]
    except (ToolError, ToolTimeoutError, ValueError, TypeError) as error:
        raise unusable(ground_truth, f"a query that runs on the row's tables ({error})") from None
    query = extract_query(solution)
    if not query:
        return 0.0
    try:
        result = _rows(tables, query)
    except (ToolError, ToolTimeoutError):  # the submitted query is wrong, not the row
        return 0.0
    return float(any(_is_same(result, rows, in_order=_sorts(truth)) for truth, rows in right_results))


def extract_query(solution: str) -> str:
    """Extract the query from a response, or return "" if the query is too long."""
    query = tagged_block(solution[-_MAX_TEXT:], "sql", "sqlite").strip().rstrip(";").strip()
    return query if len(query) <= _MAX_QUERY else ""


def _is_same(result: list[list[Any]], right: list[list[Any]], *, in_order: bool) -> bool:
    first, second = ([tuple(map(_plain, row)) for row in rows] for rows in (result, right))
    return first == second if in_order else Counter(first) == Counter(second)


def _sorts(query: str) -> bool:
    """Whether a query sorts its rows; an ORDER BY in parentheses sorts only a subquery or a window."""
    count, query = 1, _TEXT.sub("", query)
    while count:
        query, count = _INNERMOST.subn("", query)
    return _SORTED.search(query) is not None


def _truth(ground_truth: Any, extra_info: Mapping[str, Any]) -> tuple[list[str], Any]:
    value = ground_truth
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise unusable(ground_truth, "a query") from None
    fields = value if isinstance(value, Mapping) else {"sql": value}
    sql, tables, path = (fields.get(key) or extra_info.get(key) for key in ("sql", "tables", "database"))
    if tables is None and isinstance(path, str):
        tables = Path(path)
    queries = [sql] if isinstance(sql, str) else as_data(sql)
    valid = isinstance(queries, list) and queries and all(isinstance(sql, str) and sql.strip() for sql in queries)
    if not valid or not isinstance(tables, Mapping | str | Path):
        raise unusable(ground_truth, "a query with its tables")
    return [query.strip().rstrip(";") for query in queries], tables


def _rows(tables: Mapping[str, Any] | str | Path, query: str) -> list[list[Any]]:
    return in_a_place(lambda: pool.rows(tables, query, timeout_s=QUERY_S, memory_mb=MEMORY_MB, max_rows=_MAX_ROWS))


def _plain(value: Any) -> Any:
    """Convert a value for comparisons: 1 and 1.0 are equal, and floats are rounded to six decimals."""
    if isinstance(value, dict):  # the pool returns bytes as a dict
        return value["bytes"], "bytes"
    if isinstance(value, float) and math.isfinite(value):
        rounded = round(value, 6)
        return int(rounded) if rounded == int(rounded) else rounded
    return value
