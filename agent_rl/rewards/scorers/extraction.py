r"""Finds the answer in a response: in `\boxed{}`, in a tag or after a marker, with pure functions in linear time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from agent_rl.data.boxes import MAX_TEXT, last_boxed

ANY = ("answer", "####", "答案")
FINAL = ("####", "answer", "答案")
STRICT = ("####",)
"""Markers that may precede an answer, in addition to the tag and the box: `ANY` for any response, `FINAL` for the
submitted answer, and `STRICT` for a response whose answer must follow `####`, outside the thoughts."""

_MAX_LAST = 2_000  # only this many characters at the end of a response are searched for an unmarked formula
_MAX_MARKS = 50
_MARKED = re.compile(
    r"(?:answer\s*(?:\s(?:is|should be|would be)\b|:|=|(?=\$\$?[^$\n]+\$|\\\(.+?\\\)|\\\[.+?\\\]))"
    r"|####|答案(?:是|为)?\s*[:\uff1a]?)"
    r"\s*:?[\s*]{0,8}(?P<rest>[^\n]{1,500})",
    re.IGNORECASE,
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # unlike str.lower, keeps the text's length
_FENCE = re.compile(r"^[ \t]*```[ \t]*([A-Za-z0-9_+-]*)[ \t\r]*$", re.MULTILINE)
_MAX_SHORT = 300
_FORMULA = re.compile(r"\$\$([^$]{1,300})\$\$|\$([^$\n]{1,300})\$|\\\(([^$\n]{1,300}?)\\\)|\\\[([^$]{1,300}?)\\\]")
_CLAUSE = re.compile(r"(?:\.|,|;)?\s+(?:since|because|which|where|as|so|when|by)\b|\.\s+(?=[A-Z])|\.?\s*<|\. ")
_BOLD = re.compile(r"\*\*(?=\s|$)|(?:^|(?<=\s))\*\*")
_VAGUE = re.compile(
    r"\b(?:not?|never|cannot|than|least|most|between|over|under|about|nearly|almost)\b|n't\b", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<![\w.])-?[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?(?:/[0-9]+)?\s?(?:\\?%)?(?![\w.]?[0-9])")
PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+(?:[A-Za-z]{2,}\s+)*[A-Za-z]+\b")
LOOKS_LIKE_MATH = re.compile(r"[0-9\\^_=+<>]")


def after_thoughts(text: str) -> str:
    """Return the text after the last `</think>`, up to an unclosed `<think>`."""
    return text.rpartition("</think>")[2].partition("<think>")[0] if "think>" in text else text


def last_tag(text: str, tag: str = "answer") -> str | None:
    """Return the stripped text between the last closing tag and the opening tag before it; None if a tag is missing."""
    close = text.rfind(f"</{tag}>")
    if close < 0:
        return None
    start = text.rfind(f"<{tag}>", 0, close)
    return None if start < 0 else text[start + len(tag) + 2 : close].strip()


def last_block(text: str, *languages: str) -> str | None:
    """Return the last fenced block, preferably in one of the languages, even if it is cut off; None without a block."""
    blocks: dict[bool, str] = {}  # key: whether the block's language is in `languages`
    start: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if start is not None and not fence[1]:
            blocks[start[1].lower() in languages] = text[start.end() : fence.start()]
            start = None
        else:
            start = fence
    if start is not None:
        blocks[start[1].lower() in languages] = text[start.end() :].partition("```")[0]
    block = blocks.get(True, blocks.get(False))
    return None if block is None else block.strip("\r\n")


def tagged_block(text: str, *languages: str) -> str:
    """Return the last block in the last `<answer>`, else in the last `<solution>`, else in the whole text. If it
    contains no block, return the content of the tag, or the whole text if there is no tag.
    """
    tagged = last_tag(text)
    tagged = last_tag(text, "solution") if tagged is None else tagged
    text = text if tagged is None else tagged
    block = last_block(text, *languages)
    return text if block is None else block


def marked_answer(text: str) -> str | None:
    """Return the rest of the line after the last marker, or None if there is no marker."""
    mark = _last_mark(text[-MAX_TEXT:], ANY)
    return None if mark is None else mark["rest"].strip().strip("*").strip()


def _last_mark(text: str, marks: Sequence[str]) -> re.Match[str] | None:
    folded = text.lower() if text.isascii() else text.translate(_LOWER)
    end = len(text)
    for _ in range(_MAX_MARKS):
        start = max(folded.rfind(mark, 0, end) for mark in marks)
        if start < 0:
            return None
        match = _MARKED.match(text, start) if start == 0 or not text[start - 1].isalnum() else None
        if match and match["rest"].strip(" *") and not _is_heading(text, match):
            return match
        end = start + 1
    return None


def _is_heading(text: str, mark: re.Match[str]) -> bool:
    """Whether a marker is a heading above other text, such as `#### Notes`."""
    return mark[0][0] == "#" and not LOOKS_LIKE_MATH.search(mark["rest"]) and bool(text[mark.end() :].strip())


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern, or None if the pattern does not match."""
    matches = deque(pattern.finditer(text), 1)
    return matches[0] if matches else None


def marked_part(text: str, *, joined: bool = False) -> str | None:
    """Return the content of the last `<answer>` or of a box in it; without this tag, of the last box, if any."""
    tagged = last_tag(text)
    boxed = last_boxed(text if tagged is None else tagged, joined=joined)
    return tagged if boxed is None else boxed


def extract_formula(solution: str, *, marks: Sequence[str] = ANY) -> str | None:
    """Return the formula or number that a response gives as its answer, or None if it gives no answer.

    With `ANY`, an unmarked answer counts as well, and an answer within the thoughts counts if no answer follows them.
    """
    text = solution[-MAX_TEXT:]
    rest = after_thoughts(text)
    answer = _formula(rest, marks)
    return _formula(text, marks) if answer is None and marks is ANY and rest != text else answer


def _formula(text: str, marks: Sequence[str]) -> str | None:
    tagged = last_tag(text)
    text = text if tagged is None else tagged
    whole = marks in (ANY, FINAL) or tagged is not None
    boxed = last_boxed(text, joined=True)
    mark = _last_mark(text, ANY if whole else marks)
    if boxed is not None and (whole or mark is None or mark.start() < text.rfind("\\boxed")):
        while (inner := last_boxed(boxed)) is not None:
            boxed = inner
        return boxed or None
    if boxed is None and "\\boxed{" in text:  # the closing brace of the box is missing
        return None
    if mark is not None:
        return _shortened(mark["rest"].strip().strip("*").strip())
    text = text.strip()
    if not text or not whole or (tagged is None and "<answer>" in text):
        return None
    if len(text) > _MAX_SHORT or "\n" in text:
        return _last_formula(text) if marks is ANY else None
    if not (PROSE.search(text) and LOOKS_LIKE_MATH.search(text)):
        return text
    return _last_formula(text) if marks is ANY and tagged is None else _shortened(text)


def _shortened(marked: str) -> str:
    """Extract the answer from a sentence, without the surrounding words and the reason that follows."""
    marked = _BOLD.sub("", marked)
    clause = _CLAUSE.search(marked)
    text = (marked[: clause.start()] if clause and clause.start() else marked).strip().rstrip(".").strip()
    outside = _FORMULA.sub(" ", text)
    if not PROSE.search(outside) or _VAGUE.search(outside):
        return text
    matches = list(_FORMULA.finditer(text)) or list(_NUMBER.finditer(text))
    if len(matches) != 1 or (matches[0].re is _FORMULA and LOOKS_LIKE_MATH.search(outside)):
        return text
    return matches[0][matches[0].lastindex or 0]


def _last_formula(text: str) -> str | None:
    """Return the last number after the last formula, or else the formula; without a formula, return the last number."""
    text = text[-_MAX_LAST:]
    formula = last_match(_FORMULA, text)
    match = last_match(_NUMBER, text[formula.end() :] if formula else text) or formula
    return None if match is None else match[match.lastindex or 0]
