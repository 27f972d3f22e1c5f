"""Thoughts in a turn's text: everything between `<think>` and `</think>`.

They stay in what was sampled and in what is trained on. A format does not see them: a call or an answer inside a
thought does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["CLOSE", "OPEN", "dropped_thoughts", "spoken"]

OPEN, CLOSE = "<think>", "</think>"


def spoken(text: str) -> str:
    """`text` without its thoughts.

    A thought may have been opened in the prompt, so that only its end is in `text`, or never be closed.
    """
    if CLOSE not in text and OPEN not in text:
        return text
    before, *opened = text.split(OPEN)
    said = "".join([before, *(part.partition(CLOSE)[2] for part in opened)])
    _, closed, rest = said.partition(CLOSE)
    return (rest if closed else said).strip()


def dropped_thoughts(messages: Iterable[Mapping[str, Any]], rendered: str) -> bool:
    """Whether a rendered conversation lacks a thought of its assistant's messages."""
    for message in messages:
        content = message["content"] if message["role"] == "assistant" else None
        if isinstance(content, str) and CLOSE in content:
            thought = content.partition(CLOSE)[0].rpartition(OPEN)[2].strip()
            if thought and thought not in rendered:
                return True
    return False
