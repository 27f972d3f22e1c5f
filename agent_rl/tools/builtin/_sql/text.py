"""Formats results for the policy: tables, one-line errors and suggested names, each with a maximum length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

READ_ONLY = "the database is read-only; write one SELECT statement"
MAX_ERROR_CHARS = 400
BYTES = "bytes"
"""Key that marks bytes in JSON: `{BYTES: hexadecimal digits}`."""


class QueryError(Exception):
    """The query is wrong."""


class UnusableError(Exception):
    """The database cannot be opened."""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], limits: dict[str, Any]) -> str:
    """Format a table: a header such as `a | b`, a line of dashes, the rows, and the number of rows.

    Args:
        columns: the column names.
        rows: the rows, read until a limit is reached.
        limits: `max_rows`, `max_cell_chars` and `max_chars`.
    """
    width, room = limits["max_cell_chars"], limits["max_chars"]
    head = " | ".join(_escaped(name, width) for name in columns)
    lines = [head, " | ".join("---" for _ in columns)] if len(head) <= room // 2 else [f"{head[: room // 2]}..."]
    room -= sum(map(len, lines))
    count, end = 0, ""
    for row in rows:
        line = " | ".join(_cell(value, width) for value in row)
        if count == limits["max_rows"] or len(line) > room:
            end = f"... (showing the first {count} of more rows; use WHERE, LIMIT, an aggregate or fewer columns)"
            break
        lines.append(line)
        room -= len(line) + 1
        count += 1
    return "\n".join([*lines, end or f"({counted(count)})"])


def counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def one_line(error: object) -> str:
    """Return an error's message on one line, shortened."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[:MAX_ERROR_CHARS]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion that can be appended to a message about an unknown name."""
    names = {other.lower(): other for other in known}
    matches = difflib.get_close_matches(name[:100].lower(), names, n=1, cutoff=0.5)
    listing = ", ".join([*names.values()][:20]) + (", ..." if len(names) > 20 else "")
    return f". Did you mean {names[matches[0]]}?" if matches else f". Known: {listing or 'none'}"


def _cell(value: Any, width: int) -> str:
    """Format a value; NULL is not quoted, but the string "NULL" and the empty string are."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _escaped(f"x'{value[:width].hex()}'", width)
    if value in ("", "NULL"):
        return repr(value)
    return _escaped(str(value), width)


def _escaped(text: str, width: int) -> str:
    escaped = text[:width].replace("\r", "\\r").replace("\n", "\\n").replace("|", "\\|")
    return f"{escaped}..." if len(text) > width else escaped
