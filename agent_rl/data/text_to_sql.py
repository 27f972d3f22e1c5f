"""Converts questions about databases to rows: Spider, BIRD, SkyRL-SQL and sql-eval.

    {"question": ..., "query": ..., "db_id": ...}                               Spider
    {"question": ..., "SQL": ..., "db_id": ..., "evidence": ...}                BIRD
    {"prompt": [...], "reward_spec": {"ground_truth": ...}, "db_id": ...}       SkyRL-SQL
    {"question": ..., "query": "SELECT ...;SELECT ...", "db_name": ...}         sql-eval: any of the queries is right

`--databases` sets the folder of SQLite files. The prompt contains the database's schema; the `sql` tool and the scorer
get the database's path. Because the data does not change over time, queries that use the current time get the time
`--now`, which the prompt states.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_rl.data.conversion import RawSet, text_of
from agent_rl.data.rows import makes_row
from agent_rl.data.shapes import as_messages
from agent_rl.errors import ConfigError

PROMPT = """\
{schema}

{question}

Answer with one SQLite query in a ```sql block."""
_TODAY = "\n\nToday is {now:%Y-%m-%d}, and the time {now:%H:%M:%S}. Write it into the query where you need it."
_CLOCK = re.compile(r"'now'|\bCURRENT_(?:DATE|TIMESTAMP|TIME)\b", re.IGNORECASE)
_STATEMENT = re.compile(r"""(?:'[^']*'|"[^"]*"|[^;])+""")  # a semicolon in quotes belongs to the statement


@makes_row
def to_row(example: Mapping[str, Any], databases: Path, now: datetime, tool: str | None = None) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples.

    Args:
        example: the columns of the example.
        databases: folder of SQLite files.
        now: time for queries that use the current time.
        tool: name of the tool that gets the database; None means that the row has no tool.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    name = text_of(example, "db_id", "db_name")
    database, spec = database_file(databases, name), example.get("reward_spec")
    query = text_of(spec, "ground_truth") if isinstance(spec, Mapping) else text_of(example, "query", "SQL", "sql")
    queries = [part.strip() for part in _STATEMENT.findall(query) if part.strip()]
    pinned = [at_time(query, now) for query in queries]
    if "prompt" in example and "question" not in example:
        prompt: Any = as_messages(example["prompt"], "column prompt")[0]
        question = None
    else:
        question = text_of(example, "question").strip()
        hints = [str(example[key]).strip() for key in ("evidence", "instructions") if example.get(key)]
        text = PROMPT.format(schema=schema_of(database), question="\n\n".join([question, *hints]))
        prompt = text + (_TODAY.format(now=now) if pinned != queries else "")
    labels = ("difficulty", "query_category", "hardness")
    return {
        "prompt": prompt,
        "question": question,
        "data_source": _source(example),
        "ground_truth": {"sql": pinned if len(pinned) > 1 else pinned[0], "database": str(database)},
        "ability": "sql",
        "tools_kwargs": {tool: {"create_kwargs": {"database": str(database)}}} if tool else None,
        "extra_info": {"db_id": name} | {f"sql_{key}": example[key] for key in labels if example.get(key)},
    }


def _source(example: Mapping[str, Any]) -> str:
    if "reward_spec" in example:
        return "skyrl_sql"
    if "SQL" in example:
        return "bird"
    return "spider" if "db_id" in example else "sql_eval"


def new_database(path: Path) -> sqlite3.Connection:
    """Create a database that only this process uses, without locks, which a cluster's file system may not support."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?vfs=unix-none", uri=True)


def at_time(query: str, now: datetime) -> str:
    """Return an SQLite query that uses the time `now` instead of the clock."""

    def literal(match: re.Match[str]) -> str:
        form = {"CURRENT_DATE": "%Y-%m-%d", "CURRENT_TIME": "%H:%M:%S"}.get(match[0].upper(), "%Y-%m-%d %H:%M:%S")
        return f"'{now:{form}}'"

    return _CLOCK.sub(literal, query)


def database_file(folder: Path, name: str) -> Path:
    """Return the path of a database: `name.sqlite`, or `name/name.sqlite` as in Spider and BIRD (or with `.db`).

    Raises:
        ConfigError: the folder contains no such file.
    """
    for ending in ("sqlite", "db", "sqlite3"):
        for path in (folder / f"{name}.{ending}", folder / name / f"{name}.{ending}"):
            if path.is_file():
                return path.resolve()
    problem = f"there is no {name}.sqlite or {name}/{name}.sqlite in {folder}"
    raise ConfigError("--databases", problem, "Pass the folder with the databases")


@lru_cache(maxsize=256)
def schema_of(database: Path) -> str:
    """Return the SQL statements that create a database's tables.

    Raises:
        ConfigError: the file is not an SQLite database.
    """
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(str(database), f"it is not an SQLite database ({error})", "Copy the file again") from error
    return "\n".join(f"{sql.strip()};" for (sql,) in rows if sql and "sqlite_" not in sql[:20])


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write it as 2025-01-15T12:00:00") from error


_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--databases": {
        "type": lambda folder: Path(folder).expanduser(),
        "metavar": "FOLDER",
        "required": True,
        "help": "Folder with NAME.sqlite or NAME/NAME.sqlite",
    },
    "--now": {
        "type": _time,
        "default": datetime(2025, 1, 15, 12),
        "metavar": "TIME",
        "help": "Current time for the queries, default: %(default)s",
    },
    "--tool": {"metavar": "NAME", "help": "Tool that gets the row's database, for example sql"},
}


TEXT_TO_SQL = RawSet("text_to_sql", to_row, arguments=_ARGUMENTS)
