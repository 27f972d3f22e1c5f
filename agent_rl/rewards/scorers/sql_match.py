"""Whether a query returns the same rows as the right query, on the row's own tables in SQLite.

The query is the last ```sql block or `<answer>` tag, else the whole text. The ground truth is the right query, or
`{"sql": ..., "tables": {...}}`; the tables may also be in `extra_info["tables"]`. A table is a list of
`{column: value}`, or `{"columns": [...], "rows": [[...], ...]}`; `tables` may also be an SQL script that creates them.
Instead of `tables`, `database` may give the path of an SQLite file, which is opened read-only.

Rows are compared as a multiset, or in order if the right query sorts; columns by position; floats to 10^-6. The query
can only read, for at most two seconds; a database in memory is created for every comparison.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_rl.rewards.scorers.extraction import last_block
from agent_rl.rewards.scorers.scorer import built_in, unusable

__all__ = ["extract_query", "score_sql_match"]

QUERY_S = 2.0
"""Seconds of one query."""
_MAX_TEXT = 100_000
_MAX_QUERY = 10_000
_MAX_ROWS = 10_000
_MAX_LENGTH = 1_000_000  # bytes of one value
_LIMIT_LENGTH = 0  # sqlite3.SQLITE_LIMIT_LENGTH, which Python 3.10 does not have
_STEPS = 1_000  # of SQLite's virtual machine between two checks of the deadline
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FENCED = re.compile(r"```(?:sql|sqlite)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_SORTED = re.compile(r"\border\s+by\b(?![^()]*\))", re.IGNORECASE)


@built_in("sql_match")
def score_sql_match(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 if both queries return the same rows, else 0.0.

    Raises:
        UnscoredError: the tables cannot be created, or the right query fails.
    """
    truth, tables = _truth(ground_truth, extra_info)
    try:
        with closing(_database(tables)) as database:
            wanted = _rows(database, truth)
    except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
        raise unusable(ground_truth, f"a query that runs on the row's tables ({error})") from None
    query = extract_query(solution)
    if not query:
        return 0.0
    try:
        with closing(_database(tables)) as database:
            made = _rows(database, query)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):  # the answer's own mistake
        return 0.0
    collect = list if _SORTED.search(truth) else Counter
    return float(collect(map(_key, made)) == collect(map(_key, wanted)))


def extract_query(solution: str) -> str:
    """The query in a response; "" for one that is too long."""
    query = last_block(solution[-_MAX_TEXT:], _FENCED).strip().rstrip(";").strip()
    return query if len(query) <= _MAX_QUERY else ""


def _truth(ground_truth: Any, extra_info: Mapping[str, Any]) -> tuple[str, Any]:
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
    if not isinstance(sql, str) or not sql.strip() or not isinstance(tables, Mapping | str | Path):
        raise unusable(ground_truth, "a query with its tables")
    return sql.strip().rstrip(";"), tables


def _database(tables: Mapping[str, Any] | str | Path) -> sqlite3.Connection:
    if isinstance(tables, Path):
        database = sqlite3.connect(f"{tables.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    else:
        database = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        if isinstance(tables, str):
            database.executescript(tables)
        elif isinstance(tables, Mapping):
            for name, table in tables.items():
                _fill(database, name, table)
        database.commit()
    except BaseException:
        database.close()
        raise
    if hasattr(database, "setlimit"):  # since Python 3.11
        database.setlimit(_LIMIT_LENGTH, _MAX_LENGTH)
    database.set_authorizer(_may)
    return database


def _fill(database: sqlite3.Connection, name: str, table: Any) -> None:
    if isinstance(table, Mapping):
        columns, rows = list(table["columns"]), [list(row) for row in table["rows"]]
    else:
        columns = list(dict.fromkeys(key for row in table for key in row))
        rows = [[row.get(column) for column in columns] for row in table]
    if not columns:
        raise ValueError(f"the table {name!r} has no columns")
    database.execute(f"CREATE TABLE {_name(name)} ({', '.join(map(_name, columns))})")
    marks = ", ".join("?" for _ in columns)
    database.executemany(f"INSERT INTO {_name(name)} VALUES ({marks})", rows)


def _name(name: Any) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _may(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second != "load_extension"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _rows(database: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    deadline = time.monotonic() + QUERY_S
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    rows = database.execute(query).fetchmany(_MAX_ROWS + 1)
    if len(rows) > _MAX_ROWS:
        raise ValueError(f"more than {_MAX_ROWS} rows")
    return rows


def _key(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row for comparing: 1 and 1.0 are the same, floats are rounded to six decimals."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        rounded = round(value, 6)
        return int(rounded) if rounded == int(rounded) else rounded
    return value
