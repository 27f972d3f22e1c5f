"""`sql`: read-only queries on an SQLite file.

    - name: sql
      config:
        root: data/spider                  # folder of the databases; relative paths start here
        database: concert_singer.sqlite    # or in each row: extra_info.tools_kwargs.sql.create_kwargs.database
        timeout_s: 10                      # for one query; keep it below the entry's or the run's limit

A query is the only argument. `.schema`, `.schema NAME`, `.tables`, `SHOW TABLES`, `DESCRIBE NAME` and an empty
query return tables, columns, keys and row counts. Only SELECT, WITH, VALUES and EXPLAIN are executed; other statements
are rejected.

SQLite runs in separate processes whose time and memory the kernel limits (`_sql.worker`); each call reopens the file.
The file must not change during a run, because it is read as immutable, without a lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.errors import ConfigError, ToolError
from agent_rl.settings.errors import Place, validated
from agent_rl.tools.base import Tool, ToolConfig
from agent_rl.tools.builtin._sql import pool

MAX_QUERY_CHARS = 20_000
_LISTING = re.compile(
    r"(?:\.tables|show\s+tables|(?:\.schema|describe|desc)"
    r"""(?:\s+(?:(?P<plain>[\w.$-]+)|["'`\[](?P<quoted>[^"'`\]]+)["'`\]]))?)?""",
    re.IGNORECASE,
)
_HEADER = b"SQLite format 3\0"


class SqlConfig(ToolConfig):
    """The entry's `config`."""

    database: str | None = Field(default=None, min_length=1)
    root: str | None = Field(default=None, min_length=1)
    """Folder that contains the databases; null means any folder."""
    max_rows: int = Field(default=50, ge=1)
    max_cell_chars: int = Field(default=200, ge=10)
    max_chars: int = Field(default=8000, ge=200)
    """Maximum number of characters in the whole result."""
    timeout_s: float = Field(default=10.0, ge=0.1)
    memory_mb: int = Field(default=512, ge=64)
    """Memory limit for a query, in MiB."""


class _Row(ToolConfig):
    """The `create_kwargs` of a row: its database, unless the entry sets a database."""

    database: str = Field(min_length=1)


class Sql(Tool):
    """A stateless tool that answers queries on the trajectory's database."""

    name = "sql"
    Config = SqlConfig
    settings: SqlConfig
    idempotent = reusable = True  # calls can be repeated and results reused, because the file does not change
    max_concurrency = 8  # every call runs in a separate process
    description = (
        "Query the database with one read-only SQL statement. The query .schema lists tables with their columns and "
        "keys, .schema NAME describes one table."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "For example SELECT name FROM singer ORDER BY age LIMIT 5"}
        },
        "required": ["query"],
    }

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for unknown keys, unusable values, and a missing database."""
        settings = validated(SqlConfig, config)
        if settings.root is not None and not Path(settings.root).is_dir():
            raise ConfigError("root", f"{settings.root!r} is not a folder", "Set root to the folder with the databases")
        if settings.database is not None:
            _locate(settings.database, settings.root)

    async def start(self) -> None:
        """Locate the row's database.

        Raises:
            ConfigError: the row has no usable database.
        """
        place = Place(f"extra_info.tools_kwargs.{self.name}.create_kwargs")
        defaults = {} if self.settings.database is None else {"database": self.settings.database}
        database = validated(_Row, defaults | dict(self.create_kwargs), place).database
        with place.around():
            self._path = _locate(database, self.settings.root)

    def call(self, arguments: dict[str, Any]) -> str:
        """Return the result as a table, or the schema; blocks for at most `timeout_s`."""
        query: str = arguments["query"]
        if len(query) > MAX_QUERY_CHARS:
            raise ToolError(f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read")
        if any("\ud800" <= character <= "\udfff" for character in query):
            raise ToolError("the query contains half a character (a lone surrogate); send it again without it")
        listing = _LISTING.fullmatch(query.strip(" \t\r\n;"))
        request = {
            "database": str(self._path),
            "query": None if listing else query,
            "table": (listing["plain"] or listing["quoted"]) if listing else None,
            **self.settings.model_dump(include={"max_rows", "max_cell_chars", "max_chars", "timeout_s"}),
        }
        return pool.ask(self.settings.memory_mb, request)


def _locate(name: str, root: str | None) -> Path:
    """Return the database's path, with links resolved.

    Raises:
        ConfigError: the database does not exist, is not under `root`, or is not an SQLite file.
    """
    try:
        path = (Path(root or ".") / name).resolve()
        if root is not None and not path.is_relative_to(Path(root).resolve()):
            raise ConfigError("database", f"{name!r} is not under root {root!r}", "Move the file there, or change root")
        if not path.is_file():
            raise ConfigError("database", f"{name!r} is not a file (looked for {path})", "Use an existing database")
        with path.open("rb") as file:
            start = file.read(16)
    except (OSError, ValueError) as error:  # ValueError: a NUL character
        raise ConfigError("database", f"{name!r} cannot be read: {error}", "Use a readable file") from error
    if start != _HEADER:
        raise ConfigError("database", f"{name!r} is not an SQLite file", "Use an SQLite file")
    if pool.has_unwritten_changes(path):
        raise ConfigError("database", f"{name!r} has unwritten changes (-wal or -journal)", "Open and close it once")
    return path
