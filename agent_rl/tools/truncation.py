"""Cuts a result for the policy: keeps its head, its tail or both, and notes how many characters were cut.

A token limit covers the result's text and the note, as counted by the tokenizer, but not what the chat template adds
around them. Text is cut between characters, never inside a character.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agent_rl.errors import ConfigError

TruncateSide = Literal["left", "middle", "right"]
_SIDES = ("left", "middle", "right")
_CHARS_PER_TOKEN = 16  # limits how much text is tokenized; text with longer tokens is cut more than necessary


@dataclass(frozen=True, slots=True)
class ResultLimit:
    """Limits on the part of a result that the policy sees."""

    chars: int | None = None
    """Number of characters to keep, not counting the note about the cut, as in verl."""
    tokens: int | None = None
    """Maximum number of tokens, including the note; needs `tokenizer`."""
    tokenizer: Any = None
    """The model's tokenizer from `transformers`."""
    side: TruncateSide = "middle"
    """The part to cut, as in verl's `tool_response_truncate_side`: `left` keeps the end, `right` keeps the start."""

    def __post_init__(self) -> None:
        if self.side not in _SIDES:
            raise ConfigError("truncate_side", f"unknown value {self.side!r}", "Write left, middle or right")
        if self.tokens is not None and self.tokenizer is None:
            raise ValueError("a token limit needs a tokenizer")

    def cut(self, text: str) -> str:
        """Cut `text` to both limits."""
        text = truncate(text, self.chars, self.side)
        if self.tokens is not None:
            text = truncate_tokens(text, self.tokens, self.tokenizer, self.side)
        return text


def truncate(text: str, limit: int | None, side: TruncateSide) -> str:
    """Return at most `limit` characters of `text`, plus a note with the number of cut characters.

    Args:
        text: the tool's result.
        limit: number of characters to keep; None means all.
        side: the part that is cut: `left` keeps the end, `right` keeps the start, `middle` keeps both, as in verl.
    """
    if limit is None or len(text) <= limit:
        return text
    head, tail = _shares(limit, side)
    return _joined(text, head, tail)


def truncate_tokens(text: str, limit: int, tokenizer: Any, side: TruncateSide = "middle") -> str:
    """Cut `text` to `limit` tokens, including a note with the number of cut characters.

    At most about 40 characters per token of the limit are tokenized, no matter how long the text is. The limit must
    leave room for the note; the setting is at least 32.
    """
    if len(text) < limit and len(text.encode()) < limit:
        return text  # a token has at least one byte; some tokenizers add a token for a leading space
    window = limit * _CHARS_PER_TOKEN
    if len(text) <= 2 * window:
        head_ids = tail_ids = tokenizer.encode(text, add_special_tokens=False)
        if len(head_ids) <= limit:
            return text
    else:
        head_ids = tokenizer.encode(text[:window], add_special_tokens=False)
        tail_ids = tokenizer.encode(text[-window:], add_special_tokens=False)
    budget = limit - len(tokenizer.encode(_joined(text, 0, 0), add_special_tokens=False))
    while budget > 0:
        head, tail = _shares(budget, side)
        first = _characters(tokenizer, head_ids[:head])
        last = _characters(tokenizer, tail_ids[max(0, len(tail_ids) - tail) :])
        cut = _joined(text, first, last)
        excess = len(tokenizer.encode(cut, add_special_tokens=False)) - limit
        if excess <= 0:
            return cut
        budget -= excess
    return _joined(text, 0, 0)


def shortened(text: str, limit: int) -> str:
    """Return the first `limit` characters of a quoted text, followed by dots if the text is longer."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def encodable(text: str) -> str:
    """Replace lone surrogates, which tokenizers reject."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _shares(limit: int, side: TruncateSide) -> tuple[int, int]:
    head = {"left": 0, "right": limit, "middle": limit - limit // 2}[side]
    return head, limit - head


def _characters(tokenizer: Any, ids: list[int]) -> int:
    """Estimate how many whole characters the tokens contain; the caller then counts the tokens of the cut text."""
    return len(tokenizer.decode(ids).strip("\ufffd")) if ids else 0


def _joined(text: str, head: int, tail: int) -> str:
    head = min(head, len(text))
    tail = min(tail, len(text) - head)
    return f"{text[:head]}...({len(text) - head - tail} characters cut)...{text[len(text) - tail :]}"
