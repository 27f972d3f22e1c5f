"""GSM8K and other tasks with one number as the answer: 1.0 if it equals the ground truth, else 0.0.

`gsm8k_marked` is what data sources are scored by: the number must be marked. `gsm8k_strict` takes only `#### `, as in
the data set's own answers; `gsm8k` takes a number anywhere. Numbers are compared as by `numeric.numeric_match`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from agent_rl.rewards.scorers.math.numeric import numeric_match, parse_number
from agent_rl.rewards.scorers.scorer import built_in, unusable

__all__ = ["score_gsm8k"]

_Reading = Literal["any", "marked", "strict"]
SOURCES = ("openai/gsm8k", "gsm8k*", "ChilleD/SVAMP", "agent_rl/arithmetic", "agent_rl/svamp")
_MARKED_TEXT = "Whether the marked number of a response equals the ground truth."
_STRICT_TEXT = "Whether the number after the last `#### ` equals the ground truth; 0.0 without that mark."

_STRICT = re.compile(r"#### ?(\$?-?\$?[0-9][0-9.,]{0,100})")
_PLAIN = re.compile(r"\s*([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)\s*$|\s*([0-9]+)\}")
_LONG = 40  # characters of a number and what is around it
_TAIL = 5_000  # characters at the end that are searched


@built_in("gsm8k_strict", inline=True, reading="strict", text=_STRICT_TEXT)
@built_in("gsm8k", inline=True)
@built_in("gsm8k_marked", *SOURCES, inline=True, reading="marked", text=_MARKED_TEXT)
def score_gsm8k(solution: str, ground_truth: Any, extra_info: Mapping[str, Any], *, reading: _Reading = "any") -> float:
    r"""Whether the response's number equals the ground truth.

    Args:
        solution: the response.
        ground_truth: of the row.
        extra_info: of the row.
        reading: `marked`: the agent's own final answer (`answer_marked` of the row), else `<answer>`, `####` or a box
            after the thoughts. `any`: also an unmarked response's last number. `strict`: the number after the last
            `#### `, also within a thought. The last two take a number with two decimals for all that round to it.

    Raises:
        UnscoredError: the ground truth is not a number.
    """
    if (score := _plain_score(solution, ground_truth, boxed=reading != "strict")) is not None:
        return score
    if reading == "strict":
        found = _STRICT.findall(solution[-_TAIL:])
        number = found[-1].rstrip(".,") if found else ""
        solution = number if parse_number(number) is not None else ""
    whole = bool(extra_info.get("answer_marked"))
    try:
        return float(numeric_match(solution, ground_truth, marked=reading == "marked", whole=whole))
    except ValueError:
        raise unusable(ground_truth, "a number") from None


def _plain_score(solution: str, ground_truth: Any, *, boxed: bool) -> float | None:
    r"""The score of the most frequent forms, `#### 18` at the end and `\boxed{18}`; None for any other."""
    if type(ground_truth) is not str or len(ground_truth) > _LONG:
        return None
    if ">" in solution and ("</answer>" in solution or "think>" in solution):
        return None
    start = solution.rfind("####") + 4
    if start == 3:
        start = solution.rfind("\\boxed{") + 7
        if start == 6 or not boxed:
            return None
    elif len(solution) - start > _LONG:
        return None
    found = _PLAIN.match(solution, start, start + _LONG)
    if found is None or (found[2] is None) == (solution[start - 1] == "{"):
        return None
    number = found[2] or found[1].replace(",", "")
    if number == ground_truth:
        return 1.0
    if not (ground_truth.isdigit() and ground_truth.isascii()):
        return None
    return float(number.lstrip("0") == ground_truth.lstrip("0"))
