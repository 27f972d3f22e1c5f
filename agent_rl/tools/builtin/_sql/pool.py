"""Sends queries to worker processes, each of which serves only queries with the same memory limit.

A worker exits at its time limit, when it crashes, when its pipe closes, and after some idle time, so the workers of a
killed process soon exit too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from signal import SIGALRM, SIGKILL, SIGPROF
from typing import Any

from agent_rl.errors import ToolError, ToolTimeoutError, UnscoredError
from agent_rl.sandbox.workers import WorkerDied, Workers, WorkerTimeout
from agent_rl.tools.builtin._sql.text import BYTES
from agent_rl.tools.builtin._sql.worker import IDLE_S, SETUP_S, TOO_MUCH_MEMORY

_START = "import sys; sys.path.append(sys.argv[1]); from _sql.worker import main; main(int(sys.argv[2]))"
_SLACK_S = 5.0  # seconds until a worker that should have exited is killed


@cache
def workers(memory_mb: int) -> Workers:
    """Return the workers whose queries may use `memory_mb` MiB."""
    command = [sys.executable, "-I", "-c", _START, str(Path(__file__).parents[1]), str(memory_mb)]
    return Workers("runs SQLite", command, idle_s=IDLE_S / 2)


def ask(memory_mb: int, request: Mapping[str, Any]) -> str:
    """Return the answer to a request, after at most its `timeout_s` plus the start-up time of a worker.

    Raises:
        ToolError: the query fails, needs too much time or memory, or crashes the engine.
        UnscoredError: no worker can be started, or the database cannot be opened.
    """
    reply = _reply(memory_mb, request)
    if "unusable" in reply:
        raise UnscoredError(f"the database {request['database']} cannot be opened: {reply['unusable']}")
    return str(reply["text"])


def rows(
    tables: Mapping[str, Any] | str | Path, query: str, *, timeout_s: float, memory_mb: int, max_rows: int
) -> list[list[Any]]:
    """Return the rows of a query.

    Args:
        tables: a mapping of table names to rows, an SQL script that creates the tables, or the path of a database.
        query: one SELECT statement.
        timeout_s: time limit for the query, in CPU seconds.
        memory_mb: memory limit for the tables and the query, in MiB.
        max_rows: maximum number of rows; a query that returns more rows fails.

    Raises:
        ToolError: the query fails as described in `ask`, or returns too many rows or rows that are too large.
        ValueError: the tables cannot be created, or the database cannot be opened.
        UnscoredError: no worker can be started, or the machine is too busy.
    """
    if isinstance(tables, Path) and has_unwritten_changes(tables):
        raise ValueError(f"{tables} has unwritten changes (-wal or -journal)")
    source = {"database": str(tables.resolve())} if isinstance(tables, Path) else {"tables": _plain(tables)}
    reply = _reply(memory_mb, {**source, "query": query, "timeout_s": timeout_s, "max_rows": max_rows})
    if "unusable" in reply:
        raise ValueError(reply["unusable"])
    result: list[list[Any]] = reply["rows"]
    return result


def _plain(value: Any) -> Any:
    """Convert tables to JSON data; lists that were read from parquet files are numpy arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {BYTES: value.hex()}
    return value if value is None or isinstance(value, str | int | float) else str(value)


def has_unwritten_changes(path: Path) -> bool:
    """Whether files next to an SQLite file contain changes that a reader without locks would not see."""
    companions = [Path(f"{path}{end}") for end in ("-wal", "-journal")]
    return any(file.is_file() and file.stat().st_size for file in companions)


def _reply(memory_mb: int, request: Mapping[str, Any]) -> dict[str, Any]:
    limit_s = request["timeout_s"] + (0.0 if "table" in request else SETUP_S) + _SLACK_S  # as in `worker._answer`
    try:
        reply: dict[str, Any] = workers(memory_mb).ask(
            request, limit_s, may_be_kept=lambda reply: bool(reply.get("error") != TOO_MUCH_MEMORY)
        )
    except WorkerTimeout:
        raise _too_slow(request["timeout_s"]) from None
    except WorkerDied as died:
        if died.status == -SIGALRM and "table" not in request:
            raise UnscoredError(f"the machine is too busy: no rows after {SETUP_S:g} s of wall time") from None
        if died.status in (-SIGALRM, -SIGPROF):
            raise _too_slow(request["timeout_s"]) from None
        if died.status < 0 and died.status != -SIGKILL:  # the worker crashed, usually because memory ran out
            problem = f"the query made the engine crash; {TOO_MUCH_MEMORY}, or is nested too deeply"
            raise ToolError(problem) from None
        raise UnscoredError(f"the database engine process exited with status {died.status}") from None
    if "error" in reply:
        raise ToolError(reply["error"])
    return reply


def _too_slow(timeout_s: float) -> ToolTimeoutError:
    hint = "make the query simpler, or filter before joining and sorting"
    return ToolTimeoutError(f"the query did not finish within {timeout_s:g} s; {hint}")
