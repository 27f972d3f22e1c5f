r"""Finds the answer in the `\boxed{}` of a solution or a response, in linear time."""

from __future__ import annotations

import re
from collections import deque

MAX_TEXT = 50_000
"""Number of characters at the end of a text that are searched for boxes."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\boxed\s+(?=[^\s{])")
_MAX_BOX = 2_000  # maximum number of characters in a box
_MAX_BOXES = 10
_MAX_GAP = 80
_TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"(?:\\q?quad|\\[,;:!()\[\]\s]|\\\\|[$&~.\s])+")
_JOINT = re.compile(
    r" ?(?:[,;]? ?(?:[A-Za-z()]+ ){0,5}(?:and|or|as well as|和|或) ?,?|[,;]|) ?(?:[A-Za-z]\w{0,3} ?= ?)?", re.IGNORECASE
)
_OPPOSED = re.compile(r"\b(?:no|not|is|was|wrong|then|so|thus|hence|therefore|but|wait|instead)\b", re.IGNORECASE)


def last_boxed(text: str, *, joined: bool = False) -> str | None:
    r"""Return the content of the last complete `\boxed{}` (or `\fbox{}`, or `\boxed 5`), or None if there is no box.

    Args:
        text: the response.
        joined: whether to include preceding boxes that are separated only by spacing, commas, "and" or "or", as a list
            without repetitions.
    """
    boxes = _boxes(text[-MAX_TEXT:]) if "\\" in text else []
    if not boxes:
        return None
    contents = [boxes[-1][2]]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        if not joined or not _is_joint(text[-MAX_TEXT:][before[1] : after[0]]):
            break
        contents.insert(0, before[2])
    return ", ".join(dict.fromkeys(contents))


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return the start, the end and the content of each box; if there are many, only of the last few."""
    boxes: list[tuple[int, int, str]] = []
    for match in deque(_BOX.finditer(text), _MAX_BOXES):
        box = _box_content(text, match.end())
        if box is not None and not (boxes and match.start() < boxes[-1][1]):
            boxes.append((match.start(), *box))
    return boxes


def _is_joint(gap: str) -> bool:
    r"""Whether the text between two boxes makes them a list, for example `\text{ and }`, `, y = `, ` apples and `."""
    if len(gap) > _MAX_GAP:
        return False
    words = " ".join(["", *_SPACING.sub(" ", _TEXT.sub(r" \1 ", gap)).split(), ""])
    return _JOINT.fullmatch(words) is not None and not _OPPOSED.search(words)


def _box_content(text: str, start: int) -> tuple[int, str] | None:
    """Return the end and content of the box whose brace (or bare content) starts at `start`."""
    if text[start] != "{":
        bare = re.match(r"[^\s$]{1,100}", text[start : start + 100])
        return None if bare is None else (start + bare.end(), bare[0].rstrip(".,"))
    depth = 0
    for brace in re.finditer(r"(?<!\\)[{}]", text[start : start + _MAX_BOX]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.end(), text[start + 1 : start + brace.start()].strip()
    return None
