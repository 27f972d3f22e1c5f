"""Every label of tests/rewards/corpus is kept, also by the old names of scorers that have options today.

The cases were labelled before the scorers had seen them. One has `scorer`, `solution` (the response), `truth`, perhaps
`info` (the row's extra_info) and `score`; those of mathematics have `answer`, which is put in a box, and `equal`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.rewards import find_scorer
from agent_rl.rewards.scorers import score_now

CORPUS = Path(__file__).parents[1] / "corpus"


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()]


MATH = [
    {
        "scorer": "math",
        "solution": f"so \\boxed{{{case['answer']}}}.",
        "truth": case["truth"],
        "score": float(case["equal"]),
    }
    for case in cases("math.jsonl")
]
SETS = {"mathematics": MATH, "prose": cases("extraction.jsonl")}
for pair in cases("pairs.jsonl"):
    SETS.setdefault(pair["class"], []).append(pair)


@pytest.mark.parametrize("name", SETS)
def test_every_label_is_kept(name: str) -> None:
    wrong = [
        case
        for case in SETS[name]
        if score_now(find_scorer(case["scorer"]), case["solution"], case["truth"], case.get("info"))
        != pytest.approx(case["score"])
    ]
    assert wrong == []


def test_no_case_is_lost() -> None:
    assert sum(map(len, SETS.values())) >= 3_000
