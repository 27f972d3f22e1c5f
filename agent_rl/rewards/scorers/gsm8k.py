"""GSM8K and other tasks whose answer is one number: 1.0 when it is the ground truth's, else 0.0.

`score_gsm8k` finds the number wherever `numeric.extract_number` does; `score_gsm8k_strict` only after `#### `, as the
data set's own answers have it. Both compare as `numeric.numeric_match` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_rl.rewards.scorers.math.numeric import numeric_match, parse_number
from agent_rl.rewards.scorers.scorer import built_in, unusable

__all__ = ["score_gsm8k", "score_gsm8k_strict"]

_STRICT = re.compile(r"#### ?(\$?-?\$?[0-9][0-9.,]{0,100})")
_TAIL = 5_000  # characters at the end that are searched


@built_in("gsm8k", "openai/gsm8k", "gsm8k*", "agent_rl/arithmetic", inline=True)
def score_gsm8k(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Whether the response's number is the ground truth.

    Raises:
        UnscoredError: the ground truth is no number.
    """
    try:
        return float(numeric_match(solution, ground_truth))
    except ValueError:
        raise unusable(ground_truth, "a number") from None


@built_in("gsm8k_strict", inline=True)
def score_gsm8k_strict(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The same, where the number stands after the last `#### `; without that mark 0.0.

    Raises:
        UnscoredError: the ground truth is no number.
    """
    found = _STRICT.findall(solution[-_TAIL:])
    number = found[-1].rstrip(".,") if found else ""
    return score_gsm8k(number if parse_number(number) is not None else "", ground_truth, extra_info)
