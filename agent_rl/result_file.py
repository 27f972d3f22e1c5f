"""Results kept in a file, by key: what a cache remembers beyond its process.

SQLite in WAL mode, so not for a network file system. Nothing is ever forgotten: delete the file when what made the
results has changed.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["ResultFile"]

_FILE_VERSION = 1
_OPEN_S = 20.0  # processes that open a new file at once wait for one another
_BUSY_S = 5.0

logger = logging.getLogger(__name__)


class ResultFile:
    """A SQLite table of results, shared by processes. Once it is open, its failures are logged and cost a result only.

    Args:
        path: of the file; folders are made.
        key: the configuration key that named it, for errors.
        kind: of the results, for messages: `tool results`.

    Raises:
        ConfigError: when the file cannot be opened or is something else.
    """

    def __init__(self, path: str, *, key: str, kind: str) -> None:
        self.path, self._kind = path, kind
        self._lock = threading.Lock()
        self._failed = False
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._open(time.monotonic() + _OPEN_S)
        except (OSError, sqlite3.Error) as error:
            problem = f"{path} cannot be used as a cache of {kind}: {error}"
            remedy = "Delete the file if it is a broken cache, or name another"
            raise ConfigError(key, problem, remedy) from error

    def _open(self, deadline: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version not in (0, _FILE_VERSION):
                    raise sqlite3.DatabaseError(f"its version is {version}, this agent_rl reads {_FILE_VERSION}")
                connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, result TEXT NOT NULL)")
                connection.execute("SELECT key, result FROM results LIMIT 1").fetchone()
                connection.execute(f"PRAGMA user_version={_FILE_VERSION}")
                return connection
            except sqlite3.Error as error:  # the change to WAL does not wait for its turn: it asks again
                if "locked" not in str(error) or time.monotonic() > deadline:
                    connection.close()
                    raise
                time.sleep(random.uniform(0.01, 0.1))

    def get(self, key: str) -> str | None:
        """The result, or None."""
        row = self._execute("SELECT result FROM results WHERE key = ?", (key,))
        return None if row is None else str(row[0])

    def put(self, entry: tuple[str, str]) -> None:
        """Keep a (key, result)."""
        self._execute("INSERT OR REPLACE INTO results VALUES (?, ?)", entry)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _execute(self, statement: str, values: tuple[str, ...]) -> Any:
        try:
            with self._lock, closing(self._connection.execute(statement, values)) as cursor:
                return cursor.fetchone()
        except sqlite3.Error as error:
            level = logging.DEBUG if self._failed else logging.WARNING
            logger.log(level, "cache of %s %s: %s (further failures are not shown)", self._kind, self.path, error)
            self._failed = True
            return None
