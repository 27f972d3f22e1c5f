"""Regular expressions from a configuration, with a limit on the time of each search."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import regex

from agent_rl.errors import ConfigError

__all__ = ["compiled", "found"]

LIMIT_S = 0.1
"""Wall-clock seconds of one search; other threads run meanwhile."""


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False, key: str = "patterns") -> Any:
    """The compiled form of a pattern, in the syntax of Python's `re` (and what `regex` adds).

    Raises:
        ConfigError: it is not a regular expression.
    """
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ConfigError(key, f"{pattern!r} is not a regular expression: {error}", "Correct the pattern") from error


def found(pattern: Any, text: str) -> bool | None:
    """Whether a compiled pattern occurs in a text; None after a timeout of `LIMIT_S`."""
    try:
        return pattern.search(text, timeout=LIMIT_S, concurrent=True) is not None
    except TimeoutError:
        return None
