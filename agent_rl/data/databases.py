"""SQLite databases for rows of text-to-SQL: where they are, what is in them, and queries whose clock stands still."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from agent_rl.errors import ConfigError

__all__ = ["at_time", "database_file", "new_database", "schema_of"]

_CLOCK = re.compile(r"'now'|\bCURRENT_(?:DATE|TIMESTAMP)\b", re.IGNORECASE)


def new_database(path: Path) -> sqlite3.Connection:
    """A database that nobody else knows yet: without locks, which the file system of a cluster may not have."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?vfs=unix-none", uri=True)


def at_time(query: str, now: datetime) -> str:
    """A query for SQLite in which `now` stands for the clock."""

    def literal(match: re.Match[str]) -> str:
        return f"'{now:%Y-%m-%d}'" if match[0].upper() == "CURRENT_DATE" else f"'{now:%Y-%m-%d %H:%M:%S}'"

    return _CLOCK.sub(literal, query)


def database_file(folder: Path, name: str) -> Path:
    """The file of a database: `name.sqlite`, or as in Spider and BIRD `name/name.sqlite`; also `.db`.

    Raises:
        ConfigError: there is none.
    """
    for ending in ("sqlite", "db", "sqlite3"):
        for path in (folder / f"{name}.{ending}", folder / name / f"{name}.{ending}"):
            if path.is_file():
                return path.resolve()
    problem = f"there is no {name}.sqlite or {name}/{name}.sqlite in {folder}"
    raise ConfigError("--databases", problem, "Name the folder of the databases")


@lru_cache(maxsize=256)
def schema_of(database: Path) -> str:
    """The statements that create the tables of a database.

    Raises:
        ConfigError: the file is no SQLite database.
    """
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(str(database), f"it is no SQLite database ({error})", "Copy it again") from error
    return "\n".join(f"{sql.strip()};" for (sql,) in rows if sql and "sqlite_" not in sql[:20])
