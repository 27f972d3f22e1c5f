"""Opens an SQLite file as immutable, with an authorizer that allows only reading."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .text import BYTES, READ_ONLY, QueryError, UnusableError, counted, nearest

MAX_COUNTED = 100_000
"""Maximum number of rows that a listing counts per table."""

_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_READING_PRAGMAS = {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"}
_READING_PRAGMAS |= {"data_version"}  # full-text tables need this pragma
_SETTINGS = ("query_only=1", "cell_size_check=1", "temp_store=2", "mmap_size=0")
_COLUMNS = "SELECT DISTINCT i.name FROM sqlite_master m, pragma_table_info(m.name) i WHERE m.type = 'table'"
_MISSING = re.compile(r"no such (table|column): (.+)", re.DOTALL)


class Sqlite:
    """One connection to a database.

    Args:
        path: the database, opened without locks and without creating new files. None means an in-memory database.
        memory_mb: memory limit for the engine, in MiB; a single value may use a quarter of the limit.

    Raises:
        UnusableError: the file is not a database.
    """

    def __init__(self, path: str | None, memory_mb: int) -> None:
        place = ":memory:" if path is None else f"{Path(path).as_uri()}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(place, uri=True)
            for setting in (*_SETTINGS[path is None :], f"hard_heap_limit={memory_mb << 20}"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise UnusableError(error) from error
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if hasattr(self._connection, "setlimit"):  # before Python 3.11, these limits cannot be set
            for name, value in (("LENGTH", memory_mb << 18), ("ATTACHED", 0), ("LIKE_PATTERN_LENGTH", 1000)):
                self._connection.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), value)

    def close(self) -> None:
        self._connection.close()

    def fill(self, tables: dict[str, Any] | str) -> None:
        """Create tables in an in-memory database, from a mapping of table names to rows or from an SQL script.

        Raises:
            UnusableError: the tables cannot be created.
        """
        try:
            if isinstance(tables, str):
                self._connection.executescript(tables)
            else:
                for name, table in tables.items():
                    self._fill(name, table)
            self._connection.commit()
        except (sqlite3.Error, sqlite3.Warning, ValueError, TypeError, AttributeError, KeyError) as error:
            raise UnusableError(error) from error

    def _fill(self, name: str, table: Any) -> None:
        if isinstance(table, dict):
            columns, rows = list(table["columns"]), table["rows"]
        else:
            columns = list(dict.fromkeys(key for row in table for key in row))
            rows = [[row.get(column) for column in columns] for row in table]
        if not columns:
            raise ValueError(f"the {name!r} table has no columns")
        self._connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(_quoted(str(key)) for key in columns)})")
        marks = ", ".join("?" for _ in columns)
        values = ([bytes.fromhex(cell[BYTES]) if isinstance(cell, dict) else cell for cell in row] for row in rows)
        self._connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", values)

    def rows(self, query: str) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """Return the column names and an iterator of rows; the call and the iteration may raise QueryError."""
        self._connect_virtual_tables()
        self._connection.set_authorizer(_authorize)
        cursor = self._run(lambda: self._connection.execute(query))
        if cursor.description is None:
            raise QueryError("the statement returns no rows; write one SELECT statement")
        return [column[0] for column in cursor.description], iter(lambda: self._run(cursor.fetchone), None)

    def names(self) -> list[str]:
        """Return the names of the tables and views, except the internal tables of virtual tables."""
        query = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type <> 'shadow' ORDER BY name"
        return [row[0] for row in self._connection.execute(query) if not row[0].startswith("sqlite_")]

    def describe(self, name: str) -> str:
        """Describe a table's name, rows and columns on one line; if SQLite cannot read the table, state the reason."""
        try:
            return self._described(name)
        except sqlite3.Error as error:  # such as a view of a table that was dropped
            return f"{name} (cannot be read: {error})"

    def _described(self, name: str) -> str:
        facts = self._all('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', name)
        targets = {column.lower(): " -> " + ".".join(filter(None, target)) for column, *target in facts}
        columns = [
            f"{column} {kind}".rstrip() + (" PRIMARY KEY" if key else "") + targets.get(column.lower(), "")
            for column, kind, key in self._all("SELECT name, type, pk FROM pragma_table_info(?)", name)
        ]
        return f"{name} ({self._count(name)}): {', '.join(columns)}"

    def _all(self, query: str, *values: str) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    def _count(self, name: str) -> str:
        """Describe the number of rows of a table."""
        if self._all("SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ?", name):
            return "view"
        count = self._all(f"SELECT count(*) FROM (SELECT 1 FROM {_quoted(name)} LIMIT {MAX_COUNTED + 1})")[0][0]
        return f"over {MAX_COUNTED} rows" if count > MAX_COUNTED else counted(count)

    def _connect_virtual_tables(self) -> None:
        """Connect virtual tables early, because connecting runs a CREATE TABLE, which the authorizer would reject."""
        virtual_tables = self._all("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'")
        for name in ["json_each", "json_tree", *(row[0] for row in virtual_tables)]:
            with contextlib.suppress(sqlite3.Error):  # if a module is missing, only queries that need it fail
                self._connection.execute(f"SELECT 1 FROM {_quoted(name)} LIMIT 0")

    def _run(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise QueryError(self._explain(str(error))) from error

    def _explain(self, message: str) -> str:
        if "one statement at a time" in message:
            return "more than one statement; send them one by one"
        if "authoriz" in message or "prohibited" in message:
            return f"{message}: {READ_ONLY}"
        if match := _MISSING.fullmatch(message):
            self._connection.set_authorizer(None)
            name = match[2].rsplit(".", 1)[-1]
            return message + nearest(
                name, self.names() if match[1] == "table" else [row[0] for row in self._all(_COLUMNS)]
            )
        return message


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        is_allowed = (second or "").lower() not in _REFUSED_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        is_allowed = (first or "").lower() in _READING_PRAGMAS
    else:
        is_allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
