"""The templates of all pages: they escape, and show by the filter `visible` what controls other text."""

from __future__ import annotations

import json
import re
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from agent_rl.work.text import named

__all__ = ["MOST_CHARACTERS", "environment", "visible"]

MOST_CHARACTERS = 20_000
"""Of one text on a page; `?full=1` shows all."""
_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL)
_STATUS = {"trained": "good", "failed": "bad", "killed": "bad", "aborted": "warn", "stopped": "warn"}
_TONES = {"answered": "", "stopped": "", "": ""}


def environment() -> Environment:
    """The templates with their filters."""
    made = Environment(
        loader=PackageLoader("agent_rl.trajectory.viewer"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {
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
    return made


def visible(text: Any, full: bool = True) -> str:
    """Text with its control, surrogate and direction characters by name, cut to `MOST_CHARACTERS` unless `full`."""
    shown = str(text)
    cut = 0 if full else max(0, len(shown) - MOST_CHARACTERS)
    return f"{named(shown[:-cut])}\n\n\u2026 {cut:,} more characters" if cut else named(shown)


def _thoughts(text: Any) -> list[tuple[str, str]]:
    """A turn's text as parts: thoughts that the policy has marked, and the rest."""
    parts = _THOUGHT.split(str(text))
    found = [("thought" if place % 2 else "text", part.strip("\n")) for place, part in enumerate(parts)]
    return [(kind, part) for kind, part in found if part.strip()] or [("text", str(text))]


def _mark(correctness: float | None) -> Markup:
    """Whether an answer is right, as a coloured word; nothing where no scorer has judged it."""
    if correctness is None:
        return Markup()
    word = "right" if correctness >= 1 else "wrong" if correctness <= 0 else "partly"
    tone = {"right": "good", "wrong": "bad"}.get(word, "warn")
    return Markup('<span class="chip mark {}">{}</span>').format(tone, word)


def _number(value: Any) -> str:
    if value is None:
        return "\u2013"
    return f"{value + 0.0:.3f}" if isinstance(value, float) else str(value)
