"""DuckDB: a file opened for reading, with access to other files, the network and settings switched off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb

from .text import READ_ONLY, QueryError, UnusableError, counted

__all__ = ["DuckDB"]

_END = re.compile(r"""[;\s]+(?:--[^\n'"$*]*(?:\n\s*|$))*$""")  # of a statement, with the comments behind it


class DuckDB:
    """One connection. Values are turned into text by the engine itself, as its own command line shows them.

    Args:
        path: of the database.
        memory_mb: MiB that the engine counts against itself; the process's limit is the one that holds.

    Raises:
        UnusableError: when it cannot be opened.
    """

    BASE_MB = 160
    """MiB of writable memory that Python takes with the engine loaded and a file open."""

    def __init__(self, path: str, memory_mb: int) -> None:
        config: dict[str, Any] = {
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
            "max_temp_directory_size": "0KB",
            "memory_limit": f"{memory_mb}MiB",
            "threads": "1",
            "lock_configuration": "true",
        }
        try:
            self._connection = duckdb.connect(path, read_only=True, config=config)
        except duckdb.Error as error:
            raise UnusableError(error) from error
        self._places: dict[str, tuple[str, str]] = {}

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: str) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """The columns' names, and the rows, read one by one; both may raise QueryError."""
        if self._explains(query):
            plan = self._run(lambda: self._connection.execute(query).fetchall())
            return ["plan"], ((line,) for row in plan for line in str(row[-1]).splitlines())
        inner = _END.sub("", query)
        cursor = self._run(lambda: self._connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (\n{inner}\n)"))
        return [column[0] for column in cursor.description], iter(lambda: self._run(cursor.fetchone), None)

    def names(self) -> list[str]:
        """Tables and views, with their schema where it is not `main`."""
        found = self._connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database() "
            "UNION ALL SELECT schema_name, view_name FROM duckdb_views() "
            "WHERE database_name = current_database() AND NOT internal ORDER BY ALL"
        ).fetchall()
        self._places = {name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name in found}
        return list(self._places)

    def count(self, name: str) -> str:
        """The rows of a table, in words."""
        rows = self._facts("estimated_size FROM duckdb_tables()", name)
        return counted(rows[0][0]) if rows else "view"

    def columns(self, name: str) -> list[tuple[str, str, bool]]:
        """Name, type and whether it is of the primary key."""
        keys = self._facts("unnest(constraint_column_names) FROM duckdb_constraints()", name, "PRIMARY KEY")
        columns = self._facts("column_name, data_type FROM duckdb_columns()", name)
        return [(column, kind, (column,) in keys) for column, kind in columns]

    def references(self, name: str) -> dict[str, str]:
        """Column in lower case -> `table.column` that it refers to."""
        what = "unnest(constraint_column_names), referenced_table, unnest(referenced_column_names)"
        facts = self._facts(f"{what} FROM duckdb_constraints()", name, "FOREIGN KEY")
        return {column.lower(): f"{table}.{other}" for column, table, other in facts}

    def _facts(self, what: str, name: str, *constraint: str) -> list[Any]:
        query = f"SELECT {what} WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
        query += " AND constraint_type = ?" * len(constraint)
        return self._connection.execute(query, [*self._places[name], *constraint]).fetchall()

    def _explains(self, query: str) -> bool:
        """Whether the one statement is an EXPLAIN."""
        kinds = [statement.type for statement in self._run(lambda: self._connection.extract_statements(query))]
        if len(kinds) != 1:
            raise QueryError("more than one statement; send them one by one" if kinds else "the query has no statement")
        if kinds[0] not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise QueryError(f"{kinds[0].name} is not authorized: {READ_ONLY}")
        return bool(kinds[0] == duckdb.StatementType.EXPLAIN)

    def _run(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except duckdb.OutOfMemoryException as error:  # its text is advice for the one who configures the engine
            raise MemoryError from error
        except (duckdb.Error, ValueError, RuntimeError) as error:
            raise QueryError(error) from error
