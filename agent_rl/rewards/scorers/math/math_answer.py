r"""MATH, AIME and the like: whether an answer is mathematically the ground truth; 1.0 or 0.0.

    score_math("so \boxed{\frac{2}{4}}", "0.5", {})  # 1.0

The answer is read from the last `<answer>` tag, else from the last `\boxed{}` (boxes separated only by "and" are a
list), else after "the answer is" or `####`; a short text is the answer itself; of a longer one, the last formula or
number.

It reads numbers, fractions, mixed numbers, percent, units, degrees, bases, expressions with variables, equations,
inequalities and intervals, unions, tuples, sets and lists (in any order), ±, matrices, and words. Most comparisons are
decided here, exactly or by values at fixed points, in microseconds; other answers go to math-verify in a separate
process, and the result is then an awaitable.

Conventions: `50\%` is 50 and also 0.5; units count only where both sides have one; `x=5` is 5; a truth with two
decimals and more stands for every exact value that rounds to it, while an answer has to be exact or right to six.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from agent_rl.rewards.scorers.extraction import last_boxed, last_match, last_tag, marked_answer
from agent_rl.rewards.scorers.math.forms import MAX_CHARS, read
from agent_rl.rewards.scorers.math.numeric import extract_number
from agent_rl.rewards.scorers.math.same import Undecided, same
from agent_rl.rewards.scorers.math.worker import compare
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

__all__ = ["extract_math", "score_math"]

SOURCES = (
    *("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500", "MATH-500", "math500"),
    *("math", "math_dapo", "math_dapo_reasoning", "*/DAPO-Math*", "*DeepScaleR*"),
    *("aime*", "AIME*", "*/aime*", "*/AIME*", "amc*", "AMC*", "minerva*", "olympiadbench*"),
    *("numina_aops_forum", "numina_synthetic_math", "numina_amc_aime", "numina_synthetic_amc", "numina_cn_k12"),
    *("numina_olympiads", "*/NuminaMath*"),
)
_MAX_TEXT = 50_000  # characters at the end of a response that are searched
_MAX_SHORT = 300
_MAX_COMPARED = 300  # characters of an answer that is given to math-verify
_FORMULA = re.compile(r"\$\$?([^$]{1,300})\$?\$|\\\(([^$]{1,300}?)\\\)|\\\[([^$]{1,300}?)\\\]")
_CLAUSE = re.compile(r"(?:\.|,|;)?\s+(?:since|because|which|where|as|so|when|by)\b|\.\s+(?=[A-Z])|\.?\s*<|\. ")
_CHOICE = re.compile(r"\s*(?:\\text\w*\{)?\(?([A-J])\)?\}?\s*")
_CHOSEN = re.compile(r"(?:\\text\w*\{)?\(?([A-J])\)?[.):}]+\s*\S")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s+(?:[A-Za-z]{2,}\s+)*[A-Za-z]+\b")
_LOOKS_LIKE_MATH = re.compile(r"[0-9\\^_=+<>]")


@built_in("math", *SOURCES, inline=True)
@built_in("geo3k", "hiyouga/geometry3k", inline=True)
def score_math(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float | Awaitable[float]:
    """Whether the response's answer equals the ground truth: a text, a number, or one of a list.

    Raises:
        UnscoredError: the ground truth is empty or too long for an answer.
    """
    truths = _truths(ground_truth)
    answer = extract_math(solution)
    if answer is None:
        return 0.0
    verdicts = {truth: _decide(answer, truth) for truth in truths}
    if True in verdicts.values():
        return 1.0
    open_ones = [truth for truth, verdict in verdicts.items() if verdict is None]
    return _by_worker(answer, open_ones) if open_ones else 0.0


def extract_math(solution: str) -> str | None:
    """The answer in a response; None if there is none."""
    text = solution[-_MAX_TEXT:]
    tagged = last_tag(text)
    if tagged is not None:
        text = tagged
    boxed = last_boxed(text, joined=True) if "\\" in text else None
    if boxed is not None:
        while (inner := last_boxed(boxed)) is not None:
            boxed = inner
        return boxed or None
    if "\\boxed{" in text:  # cut off
        return None
    marked = marked_answer(text)
    if marked:
        return _shortened(marked)
    text = text.strip()
    if not text or (tagged is None and "<answer>" in text):
        return None
    if len(text) <= _MAX_SHORT and "\n" not in text and not (_PROSE.search(text) and _LOOKS_LIKE_MATH.search(text)):
        return text
    return _last_formula(text) if tagged is None or len(text) > _MAX_SHORT or _PROSE.search(text) else text


def _shortened(marked: str) -> str:
    """The answer in the rest of a line: its formula, or the text before a reason."""
    formula = _FORMULA.search(marked)
    if formula and (not _LOOKS_LIKE_MATH.search(marked[: formula.start()])):
        rest = marked[formula.end() :]
        more = _FORMULA.search(rest)
        if not (more and re.fullmatch(r"\s*(?:,|and|or|,\s*and)\s*", rest[: more.start()])):
            return formula[formula.lastindex or 0]
    clause = _CLAUSE.search(marked)
    return (marked[: clause.start()] if clause and clause.start() else marked).strip().rstrip(".")


def _last_formula(text: str) -> str | None:
    last = last_match(_FORMULA, text[-2_000:])
    if last is not None:
        return last[last.lastindex or 0]
    number = extract_number(text)
    return None if number is None else str(number)


@lru_cache(maxsize=16_384)
def _decide(answer: str, truth: str) -> bool | None:
    """Whether answer and truth are the same; None if undecided."""
    if answer == truth:
        return True
    if len(answer) > MAX_CHARS:
        return False
    choice = _CHOICE.fullmatch(truth)
    if choice and (chosen := _CHOSEN.match(answer)):  # (B) 12 cm
        return chosen[1] == choice[1]
    try:
        return same(read(answer), read(truth))
    except Undecided:
        if len(answer) > _MAX_COMPARED or not _LOOKS_LIKE_MATH.search(answer) or _PROSE.search(answer):
            return False
        return None
    except (ArithmeticError, ValueError, RecursionError):  # a number is too large to compare
        return False


async def _by_worker(answer: str, truths: Sequence[str]) -> float:
    for truth in truths:
        if await asyncio.wrap_future(compare(answer, truth)):
            return 1.0
    return 0.0


def _truths(ground_truth: Any) -> list[str]:
    value = as_data(ground_truth)
    truths = [_truth(item) for item in (value if isinstance(value, list | tuple) else [value])]
    if not truths or not all(0 < len(truth) <= MAX_CHARS for truth in truths):
        raise unusable(ground_truth, "an answer, or a list of answers")
    return truths


def _truth(value: Any) -> str:
    """The answer in a ground truth; "" where there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = str(value).strip()
    boxed = last_boxed(text) if "\\boxed" in text or "\\fbox" in text else None
    return (text if boxed is None else boxed).rpartition("####")[2].strip()
