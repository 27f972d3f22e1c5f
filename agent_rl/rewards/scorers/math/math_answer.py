r"""MATH, AIME and the like: whether an answer is mathematically the ground truth; 1.0 or 0.0.

    score_math("so \boxed{\frac{2}{4}}", "0.5", {}, strict=True)  # 1.0

`math_strict` is what data sources are scored by: only a marked answer counts. `math` reads an unmarked one as well:
after "the answer is", a short text as a whole, the last formula or number of a longer one.

Both read numbers, fractions, mixed numbers, percent, units, degrees, bases, expressions with variables, equations,
inequalities and intervals, unions, tuples, sets and lists (in any order), ±, matrices, and words; boxes separated only
by "and", "or" or commas are a list. Most comparisons are decided here, exactly; what cannot be parsed goes to
math-verify in a separate process, and the result is then an awaitable. A ratio is its value, as a fraction is: 10:20 is
5:10. Several values joined by a sign that the truth does not have (`5 \lor 6`, `x = 5 = 6`) are none of them.

Conventions: `50\%` is 50 and also 0.5; units count only where both sides have one; `x=5` is 5, but an equation in
several unknowns is not its right side; a decimal stands for every exact value that rounds to it if it has six decimals
and six digits (in `math`, a truth with two), and for what is off by binary arithmetic.
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

__all__ = ["score_math"]

_STRICT_TEXT = "Whether the marked answer of a response equals the ground truth."
_MARKS_OF_DAPO = ("####", "answer:")
_ANSWER_LINES = ("math_dapo", "aime", "AIME")

_DATA_SETS = """
lighteval/MATH DigitalLearningGmbH/MATH-lighteval HuggingFaceH4/MATH-500 MATH-500 math500 math
agent_rl/math_python agent_rl/written_solutions */ReTool-SFT math_dapo math_dapo_reasoning */DAPO-Math*
*DeepScaleR* */DeepMath* aime* AIME* */aime* */AIME* amc* AMC* minerva* olympiadbench* */NuminaMath* svamp*
numina_aops_forum numina_synthetic_math numina_amc_aime numina_synthetic_amc numina_cn_k12 numina_olympiads
"""
SOURCES = tuple(_DATA_SETS.split())
_MAX_COMPARED = 300  # characters of an answer that is given to math-verify
_CHOICE = re.compile(r"\s*(?:\\text\w*\{)?\(?([A-J])\)?\}?\s*")
_CHOSEN = re.compile(r"(?<![A-Za-z0-9])(?:\\text\w*\{)?\(?([A-J])\)?[.):}]+(?:\s*(?=[A-Za-z0-9\\$])|\s+(?=[^\s*/+=-]))")
_BEYOND = re.compile(
    r"\\(?:sum|prod|i*int|oint|lim|gcd|lcm|max|min|det|b?mod|pmod|operatorname|cap|setminus)(?![a-zA-Z])"
)
_WORDS_WITHIN = re.compile(r"\\(?:text|mbox|mathrm)\w*\s*\{[^{}]*\}\s*[^\s.^{$\\]")
_EQUATION_WITHIN = re.compile(r"[({][^(]*=.*[)}]")
_SEVERAL = re.compile(
    r"\\\\(?![a-zA-Z])|(?<!\\)\||,\s*\\[lc]?dots|\\(?:lor|vee|mid|equiv|implies|iff|to|\w*[Rr]ightarrow)(?![a-zA-Z])"
)


@built_in("math_strict", *SOURCES, inline=True, strict=True, text=_STRICT_TEXT)
@built_in("geo3k", "hiyouga/geometry3k", inline=True, strict=True, text=_STRICT_TEXT)
@built_in("math", inline=True)
def score_math(
    solution: str, ground_truth: Any, extra_info: Mapping[str, Any], *, strict: bool = False
) -> float | Awaitable[float]:
    """Whether the response's answer equals the ground truth: a text, a number, or one of a list.

    With `strict` (`math_strict`) the answer must be marked: the agent's own final answer
    (`extra_info["answer_marked"]`), else `<answer>`, a box or `####` after the thoughts; for DAPO's data sources, whose
    prompt asks for it, also a line `Answer: 5`. Without it the last formula or number of the response counts as well,
    and what the thoughts mark; and for a ground truth with two decimals or more, each exact value that rounds to it.

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
    open_ones = [truth for truth, verdict in verdicts.items() if verdict is None]
    return _by_worker(answer, open_ones) if open_ones else 0.0


@lru_cache(maxsize=16_384)
def _decide(answer: str, truth: str, strict: bool) -> bool | None:
    """Whether answer and truth are the same; None if undecided."""
    if answer == truth:
        return True
    if len(answer) > MAX_CHARS:
        return False
    choice = _CHOICE.fullmatch(truth)
    if choice and (chosen := _CHOSEN.match(answer)):  # (B) 12 cm
        return chosen[1] == choice[1] and not _CHOSEN.search(answer, chosen.end())
    if choice and (counted := counted_choice(answer)):  # the second option
        return counted == choice[1]
    if _is_several(answer, truth):
        return False
    read_truth = read(truth)
    try:
        return same(read(answer), read_truth, strict=strict)
    except Undecided:
        return None if _is_asked(answer, truth, read_truth) else False
    except (ArithmeticError, ValueError, RecursionError):  # a number is too large to compare
        return False


def _is_several(answer: str, truth: str) -> bool:
    """Whether an answer joins values by a sign that the truth has not; math-verify would read the last of them."""
    if contradicts_itself(answer):
        return True
    signs = set(_SEVERAL.findall(answer)) - set(_SEVERAL.findall(truth))
    if answer.count("|") % 2 == 0:  # absolute values
        signs.discard("|")
    return bool(signs) and not any(part in answer for part in ("\\begin", "\\lim"))


def _is_asked(answer: str, truth: str, read_truth: Form) -> bool:
    """Whether math-verify is asked about an answer that could not be parsed.

    It drops what it does not understand: the minus and the half of `-(1, 2)/2`, and what follows words in a fraction.
    """
    if len(answer) > _MAX_COMPARED or not LOOKS_LIKE_MATH.search(answer) or PROSE.search(answer):
        return False
    if _BEYOND.search(answer) or read_truth.kind == "raw" or answer.count("\\begin") > 1:
        return True
    if read_truth.kind not in ("value", "relation"):
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
    """The answer in a ground truth; "" where there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = str(value).strip()
    boxed = last_boxed(text, joined=True) if "box" in text else None
    return (text if boxed is None else boxed).rpartition("####")[2].strip()
