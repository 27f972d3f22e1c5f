"""`Query` turns the parameters of a URL into an SQL condition that selects trajectories of an index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FACETS = ("file", "step", "split", "data_source", "agent", "stop_reason")
"""Columns with few distinct values, which a page offers as choices."""
NUMBERS = ("reward", "correctness", "turns", "calls", "errors", "malformed", "tokens", "seconds")
"""Numeric columns, which a query can sort by and limit to a range."""


class Query:
    """The filters, the order (`sort`, `descending`) and the page (from 0) of a list of trajectories.

    Args:
        parameters: the parameters of a URL; invalid values are ignored. A parameter named in `FACETS` is the value to
            match, and a parameter whose name is one of `NUMBERS` plus `_min` or `_max` is a limit. `tool` names a tool
            that was called, and `component` a component with a value from `component_min` to `component_max`. `error`
            is yes or no; `text` lists words that must all occur in a trajectory. `sort` is one of `NUMBERS`, or `step`,
            the default; `order` is desc or asc, and `page` is a number.
    """

    def __init__(self, parameters: Mapping[str, str] | None = None) -> None:
        self._parameters = parameters or {}
        sort = self._parameters.get("sort", "")
        self.sort = sort if sort in NUMBERS else "step"
        self.descending = self._parameters.get("order") != "asc"
        self.page = max(0, min(read_int(self._parameters.get("page")) or 0, 10**6))

    def filters(self) -> list[tuple[str, str]]:
        """Return the parameters that filter trajectories, as keys and values."""
        ranges = [f"{name}_{end}" for name in (*NUMBERS, "component") for end in ("min", "max")]
        known = (*FACETS, *ranges, "tool", "component", "error", "text")
        return [(key, value) for key, value in self._parameters.items() if value and key in known]

    def condition(self) -> tuple[str, list[Any]]:
        """Return the `WHERE` clause of a query on `trajectories t`, and its values."""
        own = self._parameters
        step = read_int(own.get("step"))
        parts: dict[str, Any] = {f"t.{facet} = ?": own.get(facet) or None for facet in FACETS}
        parts["t.step = ?"] = own.get("step") or None if step is None else step
        for number in NUMBERS:
            parts[f"t.{number} >= ?"] = read_float(own.get(f"{number}_min"))
            parts[f"t.{number} <= ?"] = read_float(own.get(f"{number}_max"))
        parts["t.id IN (SELECT id FROM tools WHERE name = ?)"] = own.get("tool") or None
        if component := own.get("component"):
            low, high = (read_float(own.get(f"component_{end}")) for end in ("min", "max"))
            bounds = [component, -1e308 if low is None else low, 1e308 if high is None else high]
            parts["t.id IN (SELECT id FROM components WHERE name = ? AND value >= ? AND value <= ?)"] = bounds
        parts["(t.error IS NULL) = ?"] = {"yes": False, "no": True}.get(own.get("error", ""))
        parts["t.id IN (SELECT rowid FROM texts WHERE texts MATCH ?)"] = _words(own.get("text", "")[:200]) or None
        known = {part: value for part, value in parts.items() if value is not None}
        values = [each for value in known.values() for each in (value if isinstance(value, list) else [value])]
        return f"WHERE {' AND '.join(known)}" if known else "", values


def read_float(text: str | None) -> float | None:
    """Convert text to a number, or return None if the text is not a number."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else number


def read_int(text: str | None) -> int | None:
    """Convert text to an integer, or return None if it is not an integer or is too large for the database."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if abs(number) < 2**62 else None


def _words(text: str) -> str:
    """Quote the words of a search, so that FTS5 does not read any of them as an operator."""
    return " ".join(f'"{word}"' for word in "".join(char if char.isalnum() else " " for char in text).split())
