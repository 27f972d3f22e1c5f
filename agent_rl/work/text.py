"""Makes text from models, tools and logs safe to show in a terminal or on a page."""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}]")


def named(text: str) -> str:
    """Replace control, surrogate and direction characters with their code points; keep tabs and newlines."""
    return _CONTROLS.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text)


def one_line(text: str, most: int) -> str:
    """Return the start of a string on one line, without control characters.

    Args:
        text: text of any length from a model, a tool or a data set.
        most: maximum number of characters.
    """
    line = " ".join(text[: 4 * most].split())
    return named(line[:most]) + ("\u2026" if len(line) > most or len(text) > 4 * most else "")
