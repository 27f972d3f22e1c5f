r"""Finds the answer in a response: in `\boxed{}`, in a tag, after a marker. Pure functions in linear time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

__all__ = [
    "after_thoughts",
    "all_boxed",
    "box_content",
    "last_block",
    "last_boxed",
    "last_match",
    "last_tag",
    "marked_answer",
]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\boxed\s+(?=[^\s{])")
_MAX_BOX = 2_000  # characters of a box's content
_MAX_TEXT = 50_000  # characters at the end of a text in which boxes are looked for
_MAX_BOXES = 10
_MARKS = ("answer", "####", "答案")
_MAX_MARKS = 50
_MARKED = re.compile(
    r"(?:answer\s*(?:\s(?:is|should be|would be)\b|:|=|(?=\$\$?[^$\n]+\$|\\\(.+?\\\)|\\\[.+?\\\]))"
    r"|####|答案(?:是|为)?\s*[:\uff1a]?)"
    r"\s*:?[\s*]{0,8}(?P<rest>[^\n]{1,500})",
    re.IGNORECASE,
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # of the same length, unlike str.lower
_MAX_GAP = 80
_MAX_SHORT = 300
_TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"(?:\\q?quad|\\[,;:!()\[\]\s]|\\\\|[$&~.\s])+")
_JOINT = re.compile(
    r" ?(?:[,;]? ?(?:[A-Za-z()]+ ){0,5}(?:and|or|as well as|和|或) ?,?|[,;]|) ?(?:[A-Za-z]\w{0,3} ?= ?)?", re.IGNORECASE
)
_OPPOSED = re.compile(r"\b(?:no|not|is|was|wrong|then|so|thus|hence|therefore|but|wait|instead)\b", re.IGNORECASE)


def after_thoughts(text: str) -> str:
    """The text after the last `</think>`, up to a `<think>` that is not closed."""
    return text.rpartition("</think>")[2].partition("<think>")[0] if "think>" in text else text


def last_boxed(text: str, *, joined: bool = False) -> str | None:
    r"""The content of the last complete `\boxed{}` (or `\fbox{}`, or `\boxed 5`); None without one.

    Args:
        text: the response.
        joined: include the boxes before it that only spacing, commas, "and" or "or" separate, as a list without
            repetitions.
    """
    boxes = _boxes(text[-_MAX_TEXT:])
    if not boxes:
        return None
    contents = [boxes[-1][2]]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        if not joined or not _is_joint(text[-_MAX_TEXT:][before[1] : after[0]]):
            break
        contents.insert(0, before[2])
    return _list(contents)


def all_boxed(text: str) -> str | None:
    """What the boxes of a ground truth say: all of them in a short text, otherwise the last ones, as `last_boxed`."""
    if len(text) > _MAX_SHORT:
        return last_boxed(text, joined=True)
    return _list([box[2] for box in _boxes(text)])


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of the last boxes."""
    boxes: list[tuple[int, int, str]] = []
    for match in deque(_BOX.finditer(text), _MAX_BOXES):
        box = box_content(text, match.end())
        if box is not None and not (boxes and match.start() < boxes[-1][1]):
            boxes.append((match.start(), *box))
    return boxes


def _is_joint(gap: str) -> bool:
    r"""Whether the text between two boxes makes them a list: `\text{ and }`, `, y = `, ` apples and `."""
    if len(gap) > _MAX_GAP:
        return False
    words = " ".join(["", *_SPACING.sub(" ", _TEXT.sub(r" \1 ", gap)).split(), ""])
    return _JOINT.fullmatch(words) is not None and not _OPPOSED.search(words)


def _list(contents: Sequence[str]) -> str | None:
    return ", ".join(dict.fromkeys(contents)) if contents else None


def last_tag(text: str, tag: str = "answer") -> str | None:
    """The stripped text between the last closing tag and the opening tag before it; None without such a pair."""
    close = text.rfind(f"</{tag}>")
    if close < 0:
        return None
    start = text.rfind(f"<{tag}>", 0, close)
    return None if start < 0 else text[start + len(tag) + 2 : close].strip()


def last_block(text: str, fence: re.Pattern[str]) -> str:
    """The last fenced block, else the whole text; within the last `<answer>`, else `<solution>`, if there is one."""
    tagged = last_tag(text)
    tagged = last_tag(text, "solution") if tagged is None else tagged
    text = text if tagged is None else tagged
    blocks = fence.findall(text)
    return blocks[-1] if blocks else text


def marked_answer(text: str, *, marks: Sequence[str] = _MARKS) -> str | None:
    """The rest of the line after the last mark; None without one.

    Args:
        text: the response.
        marks: of "answer" ("answer:", "the answer is"), "####" and "答案".
    """
    text = text[-_MAX_TEXT:]
    folded = text.lower() if text.isascii() else text.translate(_LOWER)
    end = len(text)
    for _ in range(_MAX_MARKS):
        start = max(folded.rfind(mark, 0, end) for mark in marks)
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
