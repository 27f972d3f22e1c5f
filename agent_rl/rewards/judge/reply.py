"""Writes verdicts as tags, and finds verdicts in replies.

    <think>
    The answer names the town, but not the year.
    </think>
    <score>2</score>

If only tags follow the thoughts, these tags are the verdict. Within other text, a tag counts only if it starts its line
(words such as `Verdict:` may precede it) and is not also in the judged text, which the model may have quoted. A code
fence around the tags, a missing end tag at the end, a JSON object and a last line `score: 2` are accepted too. If no
field has a value, or a field has two different values, there is no verdict. Thoughts end with the last `</think>` and
are never a verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from agent_rl.rewards.judge.verdict import FENCED, SCANNED, VerdictError, json_object

THINK = "think"
"""Name of the field that contains the model's thoughts."""
THOUGHTS_END = f"</{THINK}>"
_BEFORE = re.compile(
    r"[\s>*_#`-]*(?:(?:the|my|final|overall)\s+)*"
    r"(?:(?:verdict|score|rating|answer|judge?ment|output|result|preference|ranking)\b)?[\s*_]*[:=]?[\s*_`]*",
    re.IGNORECASE,
)
"""Matches the text that may precede a tag on its line."""
_SPACE = re.compile(r"\s+")


def escaped(text: str) -> str:
    """Escape text so that no part of it can be mistaken for a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def unescaped(text: str) -> str:
    """Undo `escaped`."""
    return text.replace("&lt;", "<").replace("&amp;", "&")


def split_thoughts(reply: str) -> tuple[str, str]:
    """Split a reply into its thoughts and the text after them.

    Raises:
        VerdictError: the reply ends before its thoughts do.
    """
    thoughts, end, rest = reply.rpartition(THOUGHTS_END)
    if end:
        return thoughts.partition(f"<{THINK}>")[2] or thoughts, rest
    if f"<{THINK}>" in reply:
        raise VerdictError("the reply ends within its thoughts")
    return "", reply


def is_strict(body: str, names: Collection[str]) -> dict[str, str] | None:
    """Return the fields in the text if it consists only of tags, at most one per field, and None otherwise."""
    pattern = re.compile(rf"\s*<({_either(names)})>(.*?)</\1>\s*", re.DOTALL)
    fields: dict[str, str] = {}
    at = 0
    while at < len(body):
        match = pattern.match(body, at)
        if match is None or match[1] in fields:
            return None
        fields[match[1]] = match[2]
        at = match.end()
    return fields or None


def read_fields(body: str, names: Collection[str], judged: str = "") -> dict[str, str]:
    """Return the text of each field in a reply, keyed by the field's name.

    Args:
        body: the reply without its thoughts.
        names: names of the fields.
        judged: the judged text; a tag that is also in this text may be a quotation.

    Raises:
        VerdictError: a field has two different values, or no field has a value.
    """
    if (strict := is_strict(body, names)) is not None:
        return strict
    body = FENCED.sub(r"\1", body[-SCANNED:].strip())
    if (whole := json_object(body)) and (fields := {name: whole[name] for name in names if name in whole}):
        return {name: escaped(value) if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    texts: dict[str, str] = {}
    quotable = _SPACE.sub("", judged)
    for name, value, text in [*_tags(body, names), *_last_line(body, names)]:
        if quotable and _SPACE.sub("", text) in quotable:
            continue
        value = value.strip().strip("*_`").strip()
        if texts.setdefault(name, value) != value:
            raise VerdictError(f"the reply has two values for {name}: {texts[name][:40]!r} and {value[:40]!r}")
    if not texts:
        raise VerdictError(f"there is no <{next(iter(names), '')}> in the reply ({len(body)} characters)")
    return texts


def _either(names: Collection[str]) -> str:
    return "|".join(map(re.escape, names))


def _tags(body: str, names: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and text of each tag that starts a line; if a tag is not closed, its value is the remaining
    text.
    """
    for match in re.finditer(rf"<({_either(names)})>", body, re.IGNORECASE):
        line = body[body.rfind("\n", 0, match.start()) + 1 : match.start()]
        if not _BEFORE.fullmatch(re.sub(rf"<({_either(names)})>.*?</\1>", "", line, flags=re.IGNORECASE)):
            continue
        name = next(name for name in names if name.lower() == match[1].lower())
        end = re.compile(rf"</{re.escape(name)}>", re.IGNORECASE).search(body, match.end())
        rest = body[match.end() : end.start() if end else None]
        if end is None and ("\n" in rest.strip() or "<" in rest):
            continue
        yield name, rest, body[match.start() : end.end() if end else None]


def _last_line(body: str, names: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the field in a last line such as `score: 2`, if there is only one name."""
    lines = body.strip().splitlines()
    if len(names) != 1 or not lines:
        return
    (name,) = names
    pattern = rf"[\s>*_#-]*(?:(?:my|final|overall)\s+)*{re.escape(name)}[\s*_`]*[:=][\s*_`]*(\S{{1,40}}?)[\s*_`.]*"
    match = re.fullmatch(pattern, lines[-1], re.IGNORECASE)
    if match and "<" not in match[1]:
        yield name, match[1], lines[-1]
