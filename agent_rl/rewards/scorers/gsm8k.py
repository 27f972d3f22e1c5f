"""GSM8K and other tasks with one number as the answer: 1.0 if it equals the ground truth, else 0.0.

`score_gsm8k` reads the number as `numeric.extract_number` does; `score_gsm8k_strict` only after `#### `, as in the data
set's own answers. Both compare as `numeric.numeric_match` does.
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


@built_in("gsm8k", "openai/gsm8k", "gsm8k*", "ChilleD/SVAMP", "agent_rl/arithmetic", inline=True)
def score_gsm8k(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Whether the response's number equals the ground truth.

    Raises:
        UnscoredError: the ground truth is no number.
    """
    try:
        return float(numeric_match(solution, ground_truth))
    except ValueError:
        raise unusable(ground_truth, "a number") from None


@built_in("gsm8k_strict", inline=True)
def score_gsm8k_strict(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The same for the number after the last `#### `; 0.0 without that mark.

    Raises:
        UnscoredError: the ground truth is no number.
    """
    found = _STRICT.findall(solution[-_TAIL:])
    number = found[-1].rstrip(".,") if found else ""
    return score_gsm8k(number if parse_number(number) is not None else "", ground_truth, extra_info)
