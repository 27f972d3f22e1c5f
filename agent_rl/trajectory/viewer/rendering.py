"""Loads the Jinja templates of all pages, which escape HTML and show control characters by name."""

from __future__ import annotations

import json
import re
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from agent_rl.work.text import named

MOST_CHARACTERS = 20_000
"""Maximum number of characters per text on a page; `?full=1` shows the whole text."""
_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL)
_STATUS = {"trained": "good", "failed": "bad", "killed": "bad", "aborted": "warn", "stopped": "warn"}
_TONES = {"answered": "", "stopped": "", "": ""}


def environment() -> Environment:
    """Return the Jinja environment of the templates, with its filters."""
    templates = Environment(
        loader=PackageLoader("agent_rl.trajectory.viewer"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {
        "visible": visible,
        "number": _number,
        "signed": lambda value: _number(value) if value is None else f"{value + 0.0:+.3f}",
        "sign": lambda value: "" if not value else "good" if value > 0 else "bad",
        "tone": lambda reason: _TONES.get(reason or "", "warn" if str(reason).startswith("max_") else "bad"),
        "mark": _mark,
        "status": lambda status: _STATUS.get(status, ""),
        "short": lambda text: text if len(text) <= 16 else f"{text[:8]}\u2026{text[-5:]}",
        "thoughts": _thoughts,
        "json": lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=repr),
    }
    return templates


def visible(text: Any, full: bool = True) -> str:
    """Return text with control, surrogate and direction characters named, cut at `MOST_CHARACTERS` unless `full`."""
    shown = str(text)
    cut = 0 if full else max(0, len(shown) - MOST_CHARACTERS)
    return f"{named(shown[:-cut])}\n\n\u2026 {cut:,} more characters" if cut else named(shown)


def _thoughts(text: Any) -> list[tuple[str, str]]:
    """Split a turn's text into pairs of kind and text: thoughts in <think> tags, and the rest."""
    pieces = _THOUGHT.split(str(text))
    parts = [("thought" if place % 2 else "text", piece.strip("\n")) for place, piece in enumerate(pieces)]
    return [(kind, part) for kind, part in parts if part.strip()] or [("text", str(text))]


def _mark(correctness: float | None) -> Markup:
    """Return a colored word for the correctness of an answer, or "" if no scorer judged it."""
    if correctness is None:
        return Markup()
    word = "right" if correctness >= 1 else "wrong" if correctness <= 0 else "partly"
    tone = {"right": "good", "wrong": "bad"}.get(word, "warn")
    return Markup('<span class="chip mark {}">{}</span>').format(tone, word)


def _number(value: Any) -> str:
    if value is None:
        return "\u2013"
    return f"{value + 0.0:.3f}" if isinstance(value, float) else str(value)
