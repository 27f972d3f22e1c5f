"""SQLite databases for rows of text-to-SQL: found in a folder, or made from PostgreSQL dumps.

A dump is run by DuckDB, which reads PostgreSQL's dialect, and its tables are copied. `NOW()`, `CURRENT_DATE` and
`CURRENT_TIMESTAMP` are a given time, so that the same dump always gives the same database.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["at_time", "database_file", "make_database", "new_database", "schema_of"]

_WORDS = r"(?:BIG|SMALL)?SERIAL|REFERENCES\s+[\w.]+\s*\([^)]*\)|NOW\s*\(\s*\)|CURRENT_TIMESTAMP|CURRENT_DATE"
_TOKEN = re.compile(rf"'(?:[^']|'')*'|--[^\n]*|\b(?:{_WORDS})(?!\w)", re.IGNORECASE)
"""What is replaced in a dump; texts and comments are found so that nothing in them is."""
_FORMATS = {
    **{"Month": "%B", "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"},
    **{"%i": "%M", "%s": "%S"},
}
"""Of PostgreSQL's `to_char` and MySQL's formats of dates, in DuckDB's."""
_SQLITE_CLOCK = re.compile(r"'now'|\bCURRENT_(?:DATE|TIMESTAMP)\b", re.IGNORECASE)
_TABLES = """SELECT table_schema, table_name FROM information_schema.tables
    WHERE table_type = 'BASE TABLE' ORDER BY table_schema, table_name"""


def make_database(dump: Path, target: Path, now: datetime) -> None:
    """Make an SQLite database of a dump; the schemas' names are left out.

    Args:
        dump: an SQL script in PostgreSQL's dialect.
        target: the file to write.
        now: what the clock of the dump says.

    Raises:
        ConfigError: a statement of the dump cannot be run.
    """
    import duckdb

    serials: list[str] = []
    script = _TOKEN.sub(lambda match: _for_duckdb(match[0], now, serials), dump.read_text(encoding="utf-8"))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(duckdb.connect()) as source, closing(new_database(temporary)) as database:
            source.execute("SET TimeZone = 'UTC'; CREATE SCHEMA IF NOT EXISTS public; CREATE SCHEMA IF NOT EXISTS dump")
            source.execute("SET schema = 'dump'")
            source.execute(f"CREATE MACRO dump.to_char(t, f) AS strftime(t, {_duckdbs_format()})")
            for name in serials:
                source.execute(f"CREATE SEQUENCE dump.{name}")
            source.execute(script)
            for schema, table in source.execute(_TABLES).fetchall():
                _copy(source, f'"{schema}"."{table}"', database, table)
            database.commit()
        os.replace(temporary, target)
    except duckdb.Error as error:
        raise ConfigError(str(dump), f"it cannot be run ({str(error).splitlines()[0]})", "Correct the dump") from error
    finally:
        temporary.unlink(missing_ok=True)


def new_database(path: Path) -> sqlite3.Connection:
    """A database that nobody else knows yet: without locks, which the file system of a cluster may not have."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?vfs=unix-none", uri=True)


def at_time(query: str, now: datetime) -> str:
    """A query for SQLite in which `now` stands for the clock."""

    def literal(match: re.Match[str]) -> str:
        return f"'{now:%Y-%m-%d}'" if match[0].upper() == "CURRENT_DATE" else f"'{now:%Y-%m-%d %H:%M:%S}'"

    return _SQLITE_CLOCK.sub(literal, query)


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
    raise ConfigError("--databases", problem, "Name the folder of the databases, or that of dumps with --dumps")


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


def _duckdbs_format() -> str:
    """The argument `f` of `to_char` as an expression."""
    expression = "f"
    for theirs, duckdbs in _FORMATS.items():
        expression = f"replace({expression}, '{theirs}', '{duckdbs}')"
    return expression


def _for_duckdb(token: str, now: datetime, serials: list[str]) -> str:
    if token.startswith(("'", "--")):
        return token
    if token.upper().startswith("REFERENCES"):
        return ""  # the tables are copied, nothing is changed
    if token.upper().endswith("SERIAL"):
        serials.append(f"serial_{len(serials)}")
        return f"BIGINT DEFAULT nextval('dump.{serials[-1]}')"
    is_date = token.upper() == "CURRENT_DATE"
    return f"DATE '{now:%Y-%m-%d}'" if is_date else f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S}'"


def _copy(source: Any, table: str, database: sqlite3.Connection, name: str) -> None:
    found = source.execute(f"SELECT * FROM {table}")
    columns = [(column[0], str(column[1])) for column in found.description]
    described = ", ".join(f'"{column}" {_kind(kind)}' for column, kind in columns)
    database.execute(f'CREATE TABLE "{name}" ({described})')
    marks = ", ".join("?" for _ in columns)
    rows = ([_plain(value) for value in row] for row in found.fetchall())
    database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)


def _kind(duckdbs: str) -> str:
    name = duckdbs.upper()
    if "INT" in name or name == "BOOLEAN":
        return "INTEGER"
    return "REAL" if name.startswith(("DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMBER")) else "TEXT"


def _plain(value: Any) -> Any:
    """A value as SQLite's own functions of dates and numbers expect it."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    return int(value) if isinstance(value, bool) else value
