"""Labelled pairs of answer and ground truth: tests/rewards/corpus/pairs.jsonl, each with the class that it is about.

They were labelled before the scorers had seen them. A pair has `scorer`, `solution` (the response), `truth`, perhaps
`info` (the row's extra_info) and `score`.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_rl.rewards.scorers import SCORERS, score_now

REASONS = {
    "equation in several unknowns": "an ellipse's equation is not the constant on its right; its multiples are it",
    "definition of one thing": "`y = 2x + 3` and `x = 5` say what one thing is, so that the right side alone is enough",
    "approximation": "what is only near a value is not the value, unless the truth is itself a rounded number",
    "several boxes": "a truth with two boxes asks for both; an answer with two boxes gives both",
    "percent": "50% is 50 where percent were asked for, and 0.5; it is never 5000",
    "cut decimals": "two or three decimals are another number than 1/3 or the root of 2; six and more stand for it",
    "expressions equal at some points": "agreeing at 0, at whole numbers or to twelve digits is not being equal",
    "identities": "different spellings of one expression",
    "small numbers": "10^-15 is as far from 2 * 10^-15 as 1 is from 2",
    "last number beside a mark": "what is marked is the answer, whatever number stands elsewhere",
    "unmarked": "the strict readings demand a mark: a box, ####, <answer>, or an agent's own final answer",
    "number in a thought": "a thought is no answer",
    "the agent's own answer": "it is marked as a whole, but two numbers in it are still no number",
    "repeated until one fits": "naming several things is not knowing which",
    "part of the truth": "an interval is not its end, a pair not its first entry, an expression not one of its terms",
    "constants": "0 and a polynomial that nobody asked for",
    "lists with and, or": "the spelling of a list does not matter, its elements do",
    "unequal sign": "x != 3 says the opposite of x = 3",
    "relations": "an inequality is the same multiplied by a constant, and the interval that it describes",
    "float dust": "0.1 + 0.2 of binary arithmetic is 0.3; a difference in the seventh digit is one",
    "prose after the mark": "words around the one number after a mark do not matter",
    "choices": "a letter, a letter with its text, its text, its place",
    "function calls": "alternatives may nest; a missing, a further or a wrong argument is an error",
    "SQL in <solution>": "as guides of text-to-SQL ask for it",
    "tests of LeetCode and KodCode": "tests as Python: check(candidate), pytest",
    "cases in extra_info.test_cases": "where the ground truth is null",
}
PAIRS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "corpus" / "pairs.jsonl").read_text().splitlines()
]


def test_every_class_has_its_reason() -> None:
    counted = Counter(pair["class"] for pair in PAIRS)
    assert counted.keys() == REASONS.keys()
    assert len(PAIRS) >= 1_000


@pytest.mark.parametrize("name", REASONS)
def test_every_label_is_kept(name: str) -> None:
    pairs = [pair for pair in PAIRS if pair["class"] == name]
    wrong = [
        pair
        for pair in pairs
        if score_now(SCORERS[pair["scorer"]], pair["solution"], pair["truth"], pair.get("info")) != pair["score"]
    ]
    assert wrong == []
