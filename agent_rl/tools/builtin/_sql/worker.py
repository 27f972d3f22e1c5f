"""A process that answers SQL requests; requests and answers are JSON lines.

The worker is a separate process because SQLite cannot be limited from within: `instr` ignores interrupts. In the
worker, the kernel enforces the limits: a timer whose signal kills the process, a memory limit, no writable files, and
no new files while a query runs. SQLite's own restrictions take effect before these limits do.

Every request reopens the database, so no state passes from one request to the next. A database file made by an attacker
is not safe to open.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from .sqlite import Sqlite
from .text import BYTES, QueryError, UnusableError, nearest, one_line, table

IDLE_S = 120.0
"""Idle seconds after which the process exits, in case its parent died unnoticed."""
SETUP_S = 30.0
"""Time limit for creating the tables of a request, in seconds."""
MAX_ROWS_CHARS = 16 << 20
"""Maximum size of the raw rows in an answer, in characters of JSON."""
TOO_MUCH_MEMORY = "the query needs too much memory"
_BASE_MB = 16
"""Writable memory of Python with SQLite loaded, in MiB."""


def main(memory_mb: int) -> None:
    """Answer requests from stdin on stdout until stdin is closed; a query may use `memory_mb` MiB."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # SQLite's output must not mix with a reply
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGPROF})
    _end_in(IDLE_S)
    data = (memory_mb + _BASE_MB) << 20
    limits = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_DATA, data))
    for what, value in limits:
        resource.setrlimit(what, (value, value))
    _write(replies, json.dumps("ready"))
    for line in requests:
        _end_in(SETUP_S)
        reply = json.dumps(_answer(memory_mb, json.loads(line)))
        _end_in(IDLE_S)
        _write(replies, reply)


def _write(replies: BinaryIO, line: str) -> None:
    replies.write(line.encode() + b"\n")
    replies.flush()


def _end_in(seconds: float) -> None:
    """Set the kernel timer that kills this process after `seconds`."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)


@contextlib.contextmanager
def _no_new_files() -> Iterator[None]:
    """Prevent this process from opening files; open files stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _answer(memory_mb: int, request: dict[str, Any]) -> dict[str, Any]:
    """Return `text` or `rows`, an `error` for the policy, or `unusable` if the policy did not cause the failure."""
    try:
        with contextlib.closing(Sqlite(request.get("database"), memory_mb)) as database, _no_new_files():
            if "tables" in request:
                database.fill(request["tables"])
            if "table" not in request:  # a graded query, which also gets SETUP_S seconds of wall time
                signal.setitimer(signal.ITIMER_PROF, request["timeout_s"])
                return {"rows": _rows(database, request["query"], request["max_rows"])}
            _end_in(request["timeout_s"])
            if request["query"] is None:
                return {"text": _listing(database, request["table"], request["max_chars"])}
            columns, rows = database.rows(request["query"])
            return {"text": table(columns, rows, request)}
    except UnusableError as error:
        return {"unusable": one_line(error)}
    except QueryError as error:
        return {"error": one_line(error)}
    except (MemoryError, RecursionError):
        return {"error": TOO_MUCH_MEMORY}
    except Exception as error:  # noqa: BLE001 - the query caused the error, so the policy reads it and is scored
        return {"error": one_line(f"{type(error).__name__}: {error}")}


def _rows(database: Sqlite, query: str, max_rows: int) -> list[list[Any]]:
    """Return the raw rows, with bytes as hexadecimal."""
    rows: list[list[Any]] = []
    room = MAX_ROWS_CHARS
    for row in database.rows(query)[1]:
        rows.append([{BYTES: value.hex()} if isinstance(value, bytes) else value for value in row])
        room -= sum(2 * len(value) if isinstance(value, str | bytes) else 16 for value in row)
        if len(rows) > max_rows or room < 0:
            raise QueryError(f"the query returns more than {max_rows} rows, or rows that are too large")
    return rows


def _listing(database: Sqlite, name: str | None, room: int) -> str:
    """Return one line per table, or only the line of table `name`."""
    names = database.names()
    if name is not None:
        wanted = [other for other in names if other.lower() == name.lower()]
        if not wanted:
            raise QueryError(f"no such table: {name[:100]}{nearest(name, names)}")
        names = wanted
    lines: list[str] = []
    for position, other in enumerate(names):
        line = database.describe(other)
        if lines and len(line) > room:
            rest = ", ".join(names[position:])
            lines.append(f"... and {len(names) - position} more (.schema NAME describes one): {rest}"[:2000])
            break
        lines.append(line[:room])
        room -= len(line) + 1
    return "\n".join(lines) or "(the database has no tables)"
