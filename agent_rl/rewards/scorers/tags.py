"""Checks the tags of a format such as `<think>...</think><answer>...</answer>`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["tag_share"]

MAX_TEXT = 1_000_000
"""Characters; a longer text gets 0."""


def tag_share(text: str, tags: Sequence[str], *, alone: bool = False) -> float:
    """The share of the tags that occur exactly once, closed and in order, 0 to 1.

    Args:
        text: the response.
        tags: names in their order.
        alone: whether text outside of the tags makes the share 0.
    """
    if len(text) > MAX_TEXT:
        return 0.0
    good, at, outside = 0, 0, ""
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        start = text.find(opening, at)
        end = -1 if start < 0 else text.find(closing, start)
        if end < 0 or text.count(opening) != 1 or text.count(closing) != 1:
            continue
        good += 1
        outside += text[at:start]
        at = end + len(closing)
    if alone and (outside + text[at:]).strip():
        return 0.0
    return good / len(tags)
