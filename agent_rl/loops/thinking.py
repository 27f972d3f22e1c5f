"""Thoughts in a turn's text: what stands between `<think>` and `</think>`.

They stay in what was sampled and in what is trained on. A format does not see them: a call or an answer that the policy
only thinks about is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["CLOSE", "OPEN", "dropped_thoughts", "spoken"]

OPEN, CLOSE = "<think>", "</think>"
_BLOCK = re.compile(f"{OPEN}.*?{CLOSE}", re.DOTALL)


def spoken(text: str) -> str:
    """`text` without its thoughts.

    A thought that was opened in the prompt has no beginning here, and one that was never closed has no end.
    """
    if CLOSE not in text and OPEN not in text:
        return text
    text = _BLOCK.sub("", text)
    _, closed, rest = text.partition(CLOSE)
    return (rest if closed else text).partition(OPEN)[0].strip()


def dropped_thoughts(messages: Iterable[Mapping[str, Any]], rendered: str) -> bool:
    """Whether a rendered conversation lacks a thought of its assistant's messages."""
    for message in messages:
        content = message["content"] if message["role"] == "assistant" else None
        if isinstance(content, str) and CLOSE in content:
            thought = content.partition(CLOSE)[0].rpartition(OPEN)[2].strip()
            if thought and thought not in rendered:
                return True
    return False
