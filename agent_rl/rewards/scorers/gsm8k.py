"""Scores GSM8K and other tasks whose answer is a single number: 1.0 if it equals the ground truth, else 0.0.

By default, an unmarked number is accepted too; for the built-in data sources, the number must be marked.
`numeric.numeric_match` compares the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from agent_rl.rewards.scorers.math.numeric import numeric_match, parse_number
from agent_rl.rewards.scorers.scorer import built_in, unusable

SOURCES = ("openai/gsm8k", "gsm8k*", "ChilleD/SVAMP", "agent_rl/arithmetic", "agent_rl/svamp")

_STRICT = re.compile(r"#### ?(\$?-?\$?[0-9][0-9.,]{0,100})")
_PLAIN = re.compile(r" ?([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)\s*$|\s*([0-9]+)\}")
_LONG = 40  # maximum number of characters in a number and the text around it
_TAIL = 5_000  # only this many characters at the end of a response are searched


@built_in("gsm8k", *SOURCES, inline=True, answer="marked")
def score_gsm8k(
    solution: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    answer: Literal["any", "marked", "strict"] = "any",
) -> float:
    r"""Whether the response's number equals the ground truth; `answer` is `any`, `marked` or `strict`.

    Args:
        solution: the response.
        ground_truth: the row's ground truth.
        extra_info: the row's `extra_info`.
        answer: which numbers are accepted. `marked` reads the agent's final answer (`extra_info["answer_marked"]`) or,
            after the thoughts, `<answer>`, `####` or a box. `any` also accepts the last number of an unmarked response.
            `strict` reads the number after the last `#### `, even in a thought. With `any` and `strict`, a number with
            two decimals equals every number that rounds to it.

    Raises:
        UnscoredError: the ground truth is not a number.
    """
    if (score := _plain_score(solution, ground_truth, boxed=answer != "strict")) is not None:
        return score
    if answer == "strict":
        numbers = _STRICT.findall(solution[-_TAIL:])
        number = numbers[-1].rstrip(".,") if numbers else ""
        solution = number if parse_number(number) is not None else ""
    whole = bool(extra_info.get("answer_marked"))
    try:
        return float(numeric_match(solution, ground_truth, marked=answer == "marked", whole=whole))
    except ValueError:
        raise unusable(ground_truth, "a number") from None


def _plain_score(solution: str, ground_truth: Any, *, boxed: bool) -> float | None:
    r"""Score the most frequent forms of answers, `#### 18` at the end and `\boxed{18}`; return None for other forms."""
    if type(ground_truth) is not str or len(ground_truth) > _LONG:
        return None
    if ">" in solution and ("</answer>" in solution or "think>" in solution):
        return None
    start = solution.rfind("####") + 4
    if start == 3:
        start = solution.rfind("\\boxed{") + 7
        if start == 6 or not boxed or solution.count("box") > 1 or len(solution) - start > _TAIL:
            return None
    elif len(solution) - start > _LONG:
        return None
    match = _PLAIN.match(solution, start, start + _LONG)
    if match is None or (match[2] is None) == (solution[start - 1] == "{"):
        return None
    number = match[2] or match[1].replace(",", "")
    if number == ground_truth:
        return 1.0
    if not (ground_truth.isdigit() and ground_truth.isascii()):
        return None
    return float(number.lstrip("0") == ground_truth.lstrip("0"))
