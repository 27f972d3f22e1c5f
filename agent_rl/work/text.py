"""Text of models, tools and logs as a terminal or a page may show it."""

from __future__ import annotations

import re

__all__ = ["named", "one_line"]

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_OBEYED = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}]")


def named(text: str) -> str:
    """Text with its control, surrogate and direction characters by name; tabs and newlines stay."""
    return _OBEYED.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", text)


def one_line(text: str, most: int) -> str:
    """The beginning of a text as one line in which a terminal obeys nothing.

    Args:
        text: of a model, a tool or a data set; any length.
        most: characters.
    """
    begun = " ".join(text[: 4 * most].split())
    return named(begun[:most]) + ("\u2026" if len(begun) > most or len(text) > 4 * most else "")
