"""Converts GSM8K, grade-school word problems with worked answers, to rows.

Answers in the data set end with `#### <number>` and contain calculator annotations such as `<<48/2=24>>`. The whole
answer is kept in `extra_info.answer`; the ground truth is only the number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_rl.data.conversion import Hub, RawSet, text_of
from agent_rl.data.rows import makes_row
from agent_rl.errors import ConfigError

DATA_SOURCE = "openai/gsm8k"


def final_answer(answer_text: str) -> str:
    """Return the number after the last `####`, without commas.

    Raises:
        ConfigError: `####` is missing, or no number follows it.
    """
    _, mark, text = answer_text.rpartition("####")
    number = text.strip().replace(",", "")
    if not mark or not re.fullmatch(r"-?\d+(\.\d+)?", number):
        problem = f"no number after '####' in {answer_text[-60:]!r}"
        raise ConfigError("column answer", problem, "End the answer with '#### <number>'")
    return number


@makes_row
def to_row(example: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an example with the columns `question` and `answer` to a row."""
    answer = text_of(example, "answer")
    return {
        "question": text_of(example, "question"),
        "data_source": DATA_SOURCE,
        "ground_truth": final_answer(answer),
        "extra_info": {"answer": answer},
    }


_HUB = {split: Hub(DATA_SOURCE, "main", split) for split in ("train", "test")}
GSM8K = RawSet("gsm8k", to_row, _HUB, agent_name="single_turn_agent")
GSM8K_WITH_TOOL = RawSet("gsm8k_multiturn_w_tool", to_row, _HUB)
