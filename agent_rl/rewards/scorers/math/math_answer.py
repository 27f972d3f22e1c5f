r"""Scores answers for MATH, AIME and similar data sets: 1.0 if the answer is equivalent to the ground truth, else 0.0.

    score_math("so \boxed{\frac{2}{4}}", "0.5", {}, strict=True)  # 1.0

For the built-in data sources, `strict` is true, so only a marked answer is accepted. Without `strict`, an unmarked
answer is accepted too: the text after "the answer is", a short text, or the last formula or number of a longer text.

The scorer parses numbers, fractions, mixed numbers, percentages, units, degrees, bases, expressions with variables,
equations, inequalities and intervals, unions, tuples, sets and lists (in any order), ±, matrices, and words. Boxes
separated only by "and", "or" or commas form a list. Most comparisons are made exactly, in this package; if an answer
cannot be parsed, math-verify compares it in a separate process, and the result is an awaitable. A ratio has the value
of its fraction: 10:20 equals 5:10. Several values joined by a sign that the ground truth lacks never match (`5 \lor 6`,
`x = 5 = 6`).

Conventions: `50\%` equals both 50 and 0.5. Units are compared only if both sides have a unit. `x=5` equals 5, but an
equation in several unknowns does not equal its right side. A number with six decimals and six significant digits equals
every exact value that rounds to it; without `strict`, two of each suffice in the ground truth. Binary floating-point
errors are ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from agent_rl.data.boxes import last_boxed
from agent_rl.rewards.scorers.choice import counted_choice
from agent_rl.rewards.scorers.extraction import (
    ANY,
    FINAL,
    LOOKS_LIKE_MATH,
    PROSE,
    STRICT,
    extract_formula,
)
from agent_rl.rewards.scorers.math import worker
from agent_rl.rewards.scorers.math.forms import MAX_CHARS, Form, read
from agent_rl.rewards.scorers.math.numeric import contradicts_itself
from agent_rl.rewards.scorers.math.same import Undecided, same
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

_MARKS_OF_DAPO = ("####", "answer:")
_ANSWER_LINES = ("math_dapo", "aime", "AIME")

_DATA_SETS = """
lighteval/MATH DigitalLearningGmbH/MATH-lighteval HuggingFaceH4/MATH-500 MATH-500 math500 math
agent_rl/math_python agent_rl/written_solutions */ReTool-SFT math_dapo math_dapo_reasoning */DAPO-Math*
*DeepScaleR* */DeepMath* aime* AIME* */aime* */AIME* amc* AMC* minerva* olympiadbench* */NuminaMath* svamp*
numina_aops_forum numina_synthetic_math numina_amc_aime numina_synthetic_amc numina_cn_k12 numina_olympiads
hiyouga/geometry3k
"""
SOURCES = tuple(_DATA_SETS.split())
_MAX_COMPARED = 300  # maximum number of characters in an answer that math-verify compares
_CHOICE = re.compile(r"\s*(?:\\text\w*\{)?\(?([A-J])\)?\}?\s*")
_LETTER = re.compile(r"(?<![A-Za-z0-9])(?:\\text\w*\{)?\(?([A-J])\)?[.):}]+(?:\s*(?=[A-Za-z0-9\\$])|\s+(?=[^\s*/+=-]))")
_BEYOND = re.compile(
    r"\\(?:sum|prod|i*int|oint|lim|gcd|lcm|max|min|det|b?mod|pmod|operatorname|cap|setminus)(?![a-zA-Z])"
)
_WORDS_WITHIN = re.compile(r"\\(?:text|mbox|mathrm)\w*\s*\{[^{}]*\}\s*[^\s.^{$\\]")
_EQUATION_WITHIN = re.compile(r"[({][^(]*=.*[)}]")
_SEVERAL = re.compile(
    r"\\\\(?![a-zA-Z])|(?<!\\)\||,\s*\\[lc]?dots|\\(?:lor|vee|mid|equiv|implies|iff|to|\w*[Rr]ightarrow)(?![a-zA-Z])"
)


@built_in("math", *SOURCES, inline=True, strict=True)
def score_math(
    solution: str, ground_truth: Any, extra_info: Mapping[str, Any], *, strict: bool = False
) -> float | Awaitable[float]:
    """Whether the response's answer equals the ground truth; with `strict: true`, only a marked answer counts.

    The ground truth is text, a number, or a list of right answers. With `strict`, the answer must be marked: as the
    agent's final answer (`extra_info["answer_marked"]`), or with `<answer>`, a box or `####` after the thoughts; for
    DAPO's data sources, whose prompt requests it, also with a line such as `Answer: 5`. If `strict` is false, the last
    formula or number is accepted too, and so is a marked answer in the thoughts; a truth with two or more decimals
    equals all exact values that round to it.

    Raises:
        UnscoredError: the ground truth is empty or too long for an answer.
    """
    marks: Sequence[str] = ANY
    if strict:
        lines = str(extra_info.get("data_source")).startswith(_ANSWER_LINES)
        marks = FINAL if extra_info.get("answer_marked") else _MARKS_OF_DAPO if lines else STRICT
    truths, answer = _truths(ground_truth), extract_formula(solution, marks=marks)
    if answer is None:
        return 0.0
    verdicts = {truth: _decide(answer, truth, strict) for truth in truths}
    if True in verdicts.values():
        return 1.0
    undecided = [truth for truth, verdict in verdicts.items() if verdict is None]
    return _by_worker(answer, undecided) if undecided else 0.0


@lru_cache(maxsize=16_384)
def _decide(answer: str, truth: str, strict: bool) -> bool | None:
    """Whether an answer equals a ground truth, or None if math-verify must decide."""
    if answer == truth:
        return True
    if len(answer) > MAX_CHARS:
        return False
    choice = _CHOICE.fullmatch(truth)
    if choice and (letter := _LETTER.match(answer)):  # the answer is a letter and its text, such as (B) 12 cm
        return letter[1] == choice[1] and not _LETTER.search(answer, letter.end())
    if choice and (by_count := counted_choice(answer)):  # the answer is a position: "the second option"
        return by_count == choice[1]
    if _is_several(answer, truth):
        return False
    truth_form = read(truth)
    try:
        return same(read(answer), truth_form, strict=strict)
    except Undecided:
        return None if _needs_worker(answer, truth, truth_form) else False
    except (ArithmeticError, ValueError, RecursionError):  # a number is too large to compare
        return False


def _is_several(answer: str, truth: str) -> bool:
    """Whether an answer joins values with a sign that the truth lacks; math-verify would read only the last value."""
    if contradicts_itself(answer):
        return True
    signs = set(_SEVERAL.findall(answer)) - set(_SEVERAL.findall(truth))
    if answer.count("|") % 2 == 0:  # paired bars mark absolute values
        signs.discard("|")
    return bool(signs) and not any(part in answer for part in ("\\begin", "\\lim"))


def _needs_worker(answer: str, truth: str, truth_form: Form) -> bool:
    """Whether math-verify should compare an answer that could not be parsed.

    math-verify ignores parts that it cannot parse, such as the minus sign and the `/2` of `-(1, 2)/2`, so it is used
    only for answers in which it is unlikely to ignore anything.
    """
    if len(answer) > _MAX_COMPARED or not LOOKS_LIKE_MATH.search(answer) or PROSE.search(answer):
        return False
    if _BEYOND.search(answer) or truth_form.kind == "raw" or answer.count("\\begin") > 1:
        return True
    if truth_form.kind not in ("value", "relation"):
        return False
    return not _WORDS_WITHIN.search(answer) and not _EQUATION_WITHIN.search(answer)


async def _by_worker(answer: str, truths: Sequence[str]) -> float:
    for truth in truths:
        if await asyncio.to_thread(worker.compare, answer, truth, worker.ANSWER_S):
            return 1.0
    return 0.0


def _truths(ground_truth: Any) -> list[str]:
    value = as_data(ground_truth)
    truths = [_truth(item) for item in (value if isinstance(value, list | tuple) else [value])]
    if not truths or not all(0 < len(truth) <= MAX_CHARS for truth in truths):
        raise unusable(ground_truth, "an answer, or a list of answers")
    return truths


def _truth(value: Any) -> str:
    """Extract the answer from a ground truth; "" if there is no answer."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = str(value).strip()
    boxed = last_boxed(text, joined=True) if "box" in text else None
    return (text if boxed is None else boxed).rpartition("####")[2].strip()
