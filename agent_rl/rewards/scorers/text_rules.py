r"""Scores text by the share of rules (keywords, patterns, numbers, similarity, length) that the text follows.

    rules = TextRules(all_of=["refund"], none_of=["guarantee"], patterns=[r"\border #\d+"])

Each keyword and each pattern is one rule. Rules about similarity and a target length can be followed partly. Keywords
match whole words, unless they start or end with a symbol. A pattern that exceeds its time limit counts as a broken
rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

import regex
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agent_rl.rewards.scorers.math.numeric import extract_number
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

MAX_TEXT = 1_000_000
"""Only this many characters at the end of a text are searched; tags in a longer text never count as well-formed."""
MAX_COMPARED = 2_000
"""Only this many characters at the start of a text are compared with `similar_to`."""
LIMIT_S = 0.1
"""Time limit for one search, in seconds of wall-clock time; other threads can run during the search."""


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile a pattern in the syntax of the `regex` package, which extends the syntax of Python's `re`.

    Raises:
        ValueError: the pattern is not a regular expression.
    """
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def found(pattern: Any, text: str) -> bool | None:
    """Whether a compiled pattern occurs in the text, or None if the search takes longer than `LIMIT_S`."""
    try:
        return pattern.search(text, timeout=LIMIT_S, concurrent=True) is not None
    except TimeoutError:
        return None


def tag_share(text: str, tags: Sequence[str], *, alone: bool = False) -> float:
    """Return the share of the tags that occur exactly once, closed and in order, from 0 to 1.

    Args:
        text: the text to check.
        tags: the tags' names, in the required order.
        alone: whether text outside the tags makes the share 0.
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


class TextRules(BaseModel):
    """Rules about the content of text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    all_of: tuple[str, ...] = ()
    """Keywords that must all occur in the text."""
    any_of: tuple[str, ...] = ()
    """Keywords that form one rule: at least one of them must occur in the text."""
    none_of: tuple[str, ...] = ()
    """Keywords that must not occur in the text."""
    patterns: tuple[str, ...] = ()
    """Regular expressions that must match somewhere in the text."""
    forbidden_patterns: tuple[str, ...] = ()
    """Regular expressions that must not match anywhere in the text."""
    case_sensitive: bool = False
    min_chars: int | None = Field(default=None, ge=0)
    max_chars: int | None = Field(default=None, ge=0)
    target_chars: int | None = Field(default=None, ge=1)
    """The length at which the rule's value is 1; the value falls linearly to 0 at length 0 and at twice this length."""
    number_between: tuple[float | None, float | None] | None = None
    """Minimum and maximum, both inclusive, of the number that the text gives as its answer; null means no bound."""
    similar_to: str | None = None
    """Text to compare with; the value is `difflib.SequenceMatcher`'s ratio without regard to case, from 0 to 1."""

    @field_validator("all_of", "any_of", "none_of", "patterns", "forbidden_patterns", mode="before")
    @classmethod
    def _as_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else as_data(value)

    @model_validator(mode="after")
    def _has_rules(self) -> TextRules:
        words = (*self.all_of, *self.any_of, *self.none_of)
        others = (getattr(self, name) for name in _MEASURES)
        if not (words or self.patterns or self.forbidden_patterns) and all(rule is None for rule in others):
            raise ValueError("no rule is set; add at least one rule")
        if "" in words:
            raise ValueError("a keyword is empty; remove it")
        for pattern in (*self.patterns, *self.forbidden_patterns):
            compiled(pattern, ignore_case=not self.case_sensitive)
        return self


def kept(text: str, rules: TextRules) -> dict[str, float]:
    """Return the degree to which a text follows each rule, from 0 to 1, keyed by names such as `all_of refund`."""
    text = text[-MAX_TEXT:]
    folded = text if rules.case_sensitive else text.casefold()
    fold = (lambda word: word) if rules.case_sensitive else str.casefold
    outcome: dict[str, float] = {f"all_of {word}": _has(folded, fold(word)) for word in rules.all_of}
    if rules.any_of:
        outcome["any_of"] = any(_has(folded, fold(word)) for word in rules.any_of)
    outcome |= {f"none_of {word}": not _has(folded, fold(word)) for word in rules.none_of}
    for key, patterns, wanted in (("patterns", rules.patterns, True), ("forbidden", rules.forbidden_patterns, False)):
        for pattern in patterns:
            outcome[f"{key} {pattern}"] = found(compiled(pattern, ignore_case=not rules.case_sensitive), text) is wanted
    measured = {name: value for name in _MEASURES if (value := getattr(rules, name)) is not None}
    return outcome | {name: _MEASURES[name](text, value) for name, value in measured.items()}


def _similarity(text: str, other: str) -> float:
    """Return the ratio of `SequenceMatcher` for the first `MAX_COMPARED` characters, ignoring case and extra spaces."""
    first, second = (" ".join(whole[:MAX_COMPARED].casefold().split()) for whole in (text, other))
    return SequenceMatcher(None, first, second).ratio()


def _between(text: str, bounds: tuple[float | None, float | None]) -> bool:
    number, (least, greatest) = extract_number(text), bounds
    if number is None:
        return False
    value = float(number)  # an exact 3/10 would be above the bound 0.3, which is slightly less as a float
    return (least is None or least <= value) and (greatest is None or value <= greatest)


_MEASURES: dict[str, Callable[[str, Any], float]] = {
    "min_chars": lambda text, least: len(text) >= least,
    "max_chars": lambda text, most: len(text) <= most,
    "target_chars": lambda text, target: max(0.0, 1 - abs(len(text) - target) / target),
    "number_between": _between,
    "similar_to": _similarity,
}
"""For each rule about the whole text, the function that measures how well a text follows the rule."""


@built_in("text_rules")
def score_text_rules(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Return the share of the rules in the ground truth (with the keys of `TextRules`) that the text follows.

    Raises:
        UnscoredError: the ground truth has no usable rules.
    """
    try:
        rules = TextRules.model_validate(ground_truth)
    except ValidationError:
        raise unusable(ground_truth, "a mapping of rules") from None
    outcome = kept(solution, rules)
    return sum(outcome.values()) / len(outcome)


def _has(text: str, word: str) -> bool:
    return word in text and _whole_word(word).search(text) is not None


@lru_cache(maxsize=1024)
def _whole_word(word: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if word[0].isalnum() else ""
    after = r"(?!\w)" if word[-1].isalnum() else ""
    return re.compile(before + re.escape(word) + after)
