"""`DiskCache`: results kept in a SQLite file by key, shared by the processes of one machine.

The file is in WAL mode, so it must not be on a network file system. Nothing expires: delete the file when the code
or service that computes the results has changed.
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

__all__ = ["DiskCache"]

_FILE_VERSION = 1
_OPEN_S = 20.0  # processes that create a file at the same time wait for one another
_BUSY_S = 5.0

logger = logging.getLogger(__name__)


class DiskCache:
    """A key-value table in a file. Once it is open, a failure is logged and counts as a missing entry.

    Args:
        path: of the file; its folders are created.
        key: the configuration key that holds the path, for error messages.
        kind: of the results, for messages, for example `tool results`.

    Raises:
        ConfigError: the file cannot be opened, or is not a cache.
    """

    def __init__(self, path: str, *, key: str, kind: str) -> None:
        self.path, self._kind = path, kind
        self._lock = threading.Lock()
        self._failed = False
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._create_when_free()
        except (OSError, sqlite3.Error) as error:
            problem = f"{path} cannot be used as a cache of {kind}: {error}"
            remedy = "Name another, on a disk of this machine, or delete the file if it is a broken cache"
            raise ConfigError(key, problem, remedy) from error

    def get(self, key: str) -> str | None:
        """The result, or None."""
        row = self._execute("SELECT result FROM results WHERE key = ?", key)
        return None if row is None else str(row[0])

    def put(self, key: str, result: str) -> None:
        """Store a result; it replaces an older one."""
        self._execute("INSERT OR REPLACE INTO results VALUES (?, ?)", key, result)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _create_when_free(self) -> None:
        """Retry while another process creates the file: SQLite's timeout does not cover the switch to WAL."""
        deadline = time.monotonic() + _OPEN_S
        while True:
            try:
                return self._create()
            except sqlite3.Error as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    self.close()
                    raise
                time.sleep(random.uniform(0.01, 0.1))

    def _create(self) -> None:
        """Create the table, or check the one that is there."""
        connection = self._connection
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FILE_VERSION):
            raise sqlite3.DatabaseError(f"its version is {version}, this agent_rl reads {_FILE_VERSION}")
        connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, result TEXT NOT NULL)")
        connection.execute("SELECT key, result FROM results LIMIT 1").fetchone()
        connection.execute(f"PRAGMA user_version={_FILE_VERSION}")

    def _execute(self, statement: str, *values: str) -> Any:
        try:
            with self._lock, closing(self._connection.execute(statement, values)) as cursor:
                return cursor.fetchone()
        except sqlite3.Error as error:
            level = logging.DEBUG if self._failed else logging.WARNING
            logger.log(level, "cache of %s %s: %s (further failures are not shown)", self._kind, self.path, error)
            self._failed = True
            return None
