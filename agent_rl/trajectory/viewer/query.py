"""`Query`: which trajectories of an index an address asks for, and the condition in SQL that finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FACETS", "NUMBERS", "Query", "read_float", "read_int"]

FACETS = ("file", "step", "split", "data_source", "agent", "stop_reason")
"""Columns with few values, that can be chosen."""
NUMBERS = ("reward", "correctness", "turns", "calls", "errors", "malformed", "tokens", "seconds")
"""Columns that can be sorted by and have a range."""


class Query:
    """Which trajectories, in which order (`sort`, `descending`), and which page of them (from 0).

    Args:
        given: the values of an address, of which those that cannot be read do not count. By name of `FACETS` the value;
            by name of `NUMBERS` with `_min` or `_max` the limit; `tool`, that was called; `component`, that has a value
            from `component_min` to `component_max`; `error`, yes or no; `text`, words that all occur; `sort`, of
            `NUMBERS` or `step`; `order`, desc or asc; `page`.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = given or {}
        sort = self._given.get("sort", "")
        self.sort = sort if sort in (*NUMBERS, "step") else "id"
        self.descending = self._given.get("order") != "asc"
        self.page = max(0, min(read_int(self._given.get("page")) or 0, 10**6))

    def filters(self) -> list[tuple[str, str]]:
        """The values that choose trajectories, by the keys of an address."""
        ranges = [f"{name}_{end}" for name in (*NUMBERS, "component") for end in ("min", "max")]
        known = (*FACETS, *ranges, "tool", "component", "error", "text")
        return [(key, value) for key, value in self._given.items() if value and key in known]

    def condition(self) -> tuple[str, list[Any]]:
        """The part `WHERE ...` of a query of `trajectories t`, and its values."""
        parts, given = list[str](), self._given
        values: list[Any] = []
        for facet in FACETS:
            if value := given.get(facet):
                step = read_int(value) if facet == "step" else None
                parts.append(f"t.{facet} = ?")
                values.append(value if step is None else step)
        for number in NUMBERS:
            for end, sign in (("min", ">="), ("max", "<=")):
                if (bound := read_float(given.get(f"{number}_{end}"))) is not None:
                    parts.append(f"t.{number} {sign} ?")
                    values.append(bound)
        if tool := given.get("tool"):
            parts.append("t.id IN (SELECT id FROM tools WHERE name = ?)")
            values.append(tool)
        if component := given.get("component"):
            low, high = (read_float(given.get(f"component_{end}")) for end in ("min", "max"))
            parts.append("t.id IN (SELECT id FROM components WHERE name = ? AND value >= ? AND value <= ?)")
            values += [component, -1e308 if low is None else low, 1e308 if high is None else high]
        if (error := given.get("error")) in ("yes", "no"):
            parts.append(f"t.error IS {'NOT ' * (error == 'yes')}NULL")
        if words := _words(given.get("text", "")[:200]):
            parts.append("t.id IN (SELECT rowid FROM texts WHERE texts MATCH ?)")
            values.append(words)
        return f"WHERE {' AND '.join(parts)}" if parts else "", values


def read_float(text: str | None) -> float | None:
    """The number of a text; None: it is none."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if found == found else None


def read_int(text: str | None) -> int | None:
    """The number of a text that a database can hold; None: it is none."""
    try:
        found = int(text or "")
    except ValueError:
        return None
    return found if abs(found) < 2**62 else None


def _words(text: str) -> str:
    """The words of a search as FTS5 reads them, each as text and none as an operator."""
    return " ".join(f'"{word}"' for word in "".join(each if each.isalnum() else " " for each in text).split())
