"""`Records`: an in-memory database that each episode changes without copying all of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError, ToolError

__all__ = ["Records", "Tables", "read_tables"]

Tables = Mapping[str, Mapping[str, Any]]
"""Records by table and key; a record is a JSON object."""


class Records:
    """A database that stores its changes separately from the initial tables.

    Args:
        tables: the initial tables, which are never changed.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._changed: dict[tuple[str, str], dict[str, Any]] = {}

    def find(self, table: str, key: str) -> Mapping[str, Any] | None:
        """Return a record for reading, or None."""
        changed: Mapping[str, Any] | None = self._changed.get((table, key))
        return self._tables.get(table, {}).get(key) if changed is None else changed

    def get(self, table: str, key: str) -> Mapping[str, Any]:
        """Return a record for reading.

        Raises:
            ToolError: the record does not exist.
        """
        record = self.find(table, key)
        if record is None:
            raise ToolError(f"there is no {key!r} among the {table}")
        return record

    def edit(self, table: str, key: str) -> dict[str, Any]:
        """Return a record for changing it in place.

        Raises:
            ToolError: the record does not exist.
        """
        record = self.get(table, key)
        return self._changed.setdefault((table, key), copy.deepcopy(dict(record)))

    def add(self, table: str, key: str, record: dict[str, Any]) -> None:
        """Write a record, replacing one with the same key."""
        self._changed[table, key] = record

    def merge(self, table: str, key: str, values: Mapping[str, Any]) -> None:
        """Write some values of a record."""
        self.add(table, key, {**copy.deepcopy(dict(self.find(table, key) or {})), **values})

    def all(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Yield the records of a table for reading."""
        return (record for _, record in self.items(table))

    def items(self, table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the keys and records of a table for reading."""
        known = self._tables.get(table, {})
        added = [key for name, key in self._changed if name == table and key not in known]
        return ((key, self.get(table, key)) for key in (*known, *added))

    def changes(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the records that differ from the initial ones, by table and key."""
        return {(table, key): record for (table, key), record in self._changed.items()
                if record != self._tables.get(table, {}).get(key)}  # fmt: skip


@lru_cache(16)
def read_tables(path: str) -> Tables:
    """Read the tables of a JSON file, once per process.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        tables = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise ValueError("it is not an object of tables")
    except (OSError, ValueError) as error:
        problem = f"{path} cannot be read ({error})"
        raise ConfigError("database", problem, "Use a JSON file of the form {table: {key: record}}") from error
    return tables
