r"""Finds the answer in a response: in `\boxed{}`, in a tag, after a marker. Pure functions in linear time."""

from __future__ import annotations

import re
from collections import deque

__all__ = ["box_content", "last_block", "last_boxed", "last_match", "last_tag", "marked_answer"]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\boxed\s+(?=[^\s{])")
_MAX_BOX = 2_000  # characters of a box's content
_MAX_TEXT = 50_000  # characters at the end of a text in which boxes are looked for
_MAX_BOXES = 10
_MAX_MARKED = 500
_MARKS = ("answer", "####", "答案")
_MAX_MARKS = 50
_MARKED = re.compile(
    r"(?:answer\s*(?:\s(?:is|should be|would be)\b|:|=)|####|答案(?:是|为)?\s*[:\uff1a]?)"
    r"\s*:?[\s*]{0,8}(?P<rest>[^\n]{1,500})",
    re.IGNORECASE,
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # of the same length, unlike str.lower
_JOINT = re.compile(r"[\s,;$.]*(?:and|or|和|或)?[\s,;$]*")


def last_boxed(text: str, *, joined: bool = False) -> str | None:
    r"""The content of the last complete `\boxed{}` (or `\fbox{}`, or `\boxed 5`); None without one.

    Args:
        text: the response.
        joined: include the boxes before it that only commas, "and" or "or" separate, as a list.
    """
    text = text[-_MAX_TEXT:]
    found = deque(_BOX.finditer(text), _MAX_BOXES)
    boxes: list[tuple[int, int, str]] = []
    for match in found:
        box = box_content(text, match.end())
        if box is not None and not (boxes and match.start() < boxes[-1][1]):
            boxes.append((match.start(), *box))
    if not boxes:
        return None
    contents = [boxes[-1][2]]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        gap = text[before[1] : after[0]]
        if not joined or len(gap) > 30 or not _JOINT.fullmatch(gap) or not gap.strip(" $"):
            break
        contents.insert(0, before[2])
    return ", ".join(contents)


def last_tag(text: str, tag: str = "answer") -> str | None:
    """The stripped text between the last closing tag and the opening tag before it; None without such a pair."""
    close = text.rfind(f"</{tag}>")
    if close < 0:
        return None
    start = text.rfind(f"<{tag}>", 0, close)
    return None if start < 0 else text[start + len(tag) + 2 : close].strip()


def last_block(text: str, fence: re.Pattern[str]) -> str:
    """The content of the last fenced block, else the whole text; within the last `<answer>` tag, if there is one."""
    tagged = last_tag(text)
    text = text if tagged is None else tagged
    blocks = fence.findall(text)
    return blocks[-1] if blocks else text


def marked_answer(text: str) -> str | None:
    """The rest of the line after the last "answer:", "the answer is" or `####`; None without one."""
    text = text[-_MAX_TEXT:]
    folded = text.lower() if text.isascii() else text.translate(_LOWER)
    end = len(text)
    for _ in range(_MAX_MARKS):
        start = max(folded.rfind(mark, 0, end) for mark in _MARKS)
        if start < 0:
            return None
        found = _MARKED.match(text, start) if start == 0 or not text[start - 1].isalnum() else None
        if found and found["rest"].strip(" *"):
            return found["rest"].strip().strip("*").strip()
        end = start + 1
    return None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern."""
    found = deque(pattern.finditer(text), 1)
    return found[0] if found else None


def box_content(text: str, start: int) -> tuple[int, str] | None:
    """End and content of a box; its brace (or bare content) begins at `start`."""
    if text[start] != "{":
        bare = re.match(r"[^\s$]{1,100}", text[start : start + 100])
        return None if bare is None else (start + bare.end(), bare[0].rstrip(".,"))
    depth = 0
    for brace in re.finditer(r"(?<!\\)[{}]", text[start : start + _MAX_BOX]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.end(), text[start + 1 : start + brace.start()].strip()
    return None
