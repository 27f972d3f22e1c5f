import asyncio
import json
from typing import Any

import numpy as np
import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards import compute_score
from agent_rl.rewards.scorers import SCORERS, score_answer
from agent_rl.rewards.scorers.code import extract_code

ADD = "Here:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
WRONG_ON_NEGATIVES = "```python\ndef add(a, b):\n    return abs(a) + b\n```"
CALLS = {"inputs": [[1, 2], [-1, 2]], "outputs": [3, 1], "fn_name": "add"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\n```python\nb\n```", "b"),
        ("```python\na\n```\n```\noutput\n```", "a"),
        ("```\na\n```", "a"),
        ("```cpp\nint x;\n```\n```py\nb\n```", "b"),
        ("```python\ncut", "cut"),
        ("Here:\r\n```python\r\na\r\nb\r\n```\r\nDone.\r\n", "a\r\nb"),
        ("print(1)", "print(1)"),
        ("x" * 100_001, ""),
    ],
)
def test_the_program_is_found(text: str, code: str) -> None:
    assert extract_code(text) == code


@pytest.mark.parametrize(
    "truth",
    [
        CALLS,
        json.dumps(CALLS),
        ["assert add(1, 2) == 3", "assert add(-1, 2) == 1"],
        "assert add(1, 2) == 3\nassert add(-1, 2) == 1\n",
        {"assert_case": ["assert add(1, 2) == 3", "assert add(-1, 2) == 1"]},
        np.array(["assert add(1, 2) == 3", "assert add(-1, 2) == 1"], dtype=object),
    ],
    ids=["data", "JSON", "list", "lines", "verl's assert_case", "array"],
)
async def test_every_form_of_tests_is_read(truth: Any) -> None:
    result = [
        await score_answer(scorer, text, truth)
        for scorer in (SCORERS["code"], SCORERS["code"].using(all_or_nothing=True))
        for text in (ADD, WRONG_ON_NEGATIVES, "")
    ]
    assert result == [1.0, 0.5, 0.0, 1.0, 0.0, 0.0]


def test_whole_numbers_on_standard_output_are_compared_exactly() -> None:
    truth = {"inputs": ["1\n"], "outputs": ["1000000007\n"]}
    assert compute_score("taco", "```python\nprint(10**9)\n```", truth) == 0.0


def test_tests_that_need_more_than_calls_are_unscored() -> None:
    truth = {"pytest": "def test(tmp_path):\n    assert add(1, 2) == 3"}
    with pytest.raises(UnscoredError, match="no fixture tmp_path"):
        asyncio.run(score_answer(SCORERS["code"].using(all_or_nothing=True), ADD, truth))


def test_programs_that_read_and_print() -> None:
    truth = json.dumps({"inputs": ["1 2\n", "0.1 0.2\n"], "outputs": ["3.0\n", "0.3\n"]})
    text = "```python\nprint(sum(map(float, input().split())))\n```"
    assert compute_score("taco", text, truth) == 1.0


TWICE = "```python\nclass Solution:\n    def twice(self, nums):\n        return [%s * n for n in nums]\n```"
CHECK = """
def check(candidate):
    assert candidate(nums=[1, 2]) == [2, 4]
    assert candidate(make([3])) == [6]
    assert not candidate([])
"""
CART = """```python
class Cart:
    def __init__(self, prices):
        if %s:
            raise ValueError
        self.prices = prices

    def total(self):
        return sum(self.prices)
```"""
KODCODE = """
import pytest
from solution import Cart

@pytest.mark.parametrize("prices, total", [([1, 2], 3), ([], 0)])
def test_total(prices, total):
    expected = []
    for price in prices:
        expected.append(price)
    assert Cart(prices).total() == sum(expected) == total

class TestErrors:
    def setup_method(self):
        self.wrong = [-1]

    def test_negative(self):
        with pytest.raises(ValueError):
            Cart(self.wrong)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "truth", "info", "shares"),
    [
        (
            TWICE % 2,
            TWICE % 3,
            {"test": CHECK, "entry_point": "Solution().twice", "prompt": "make = list"},
            {},
            [1, 1 / 3],
        ),
        (TWICE % 2, TWICE % 3, f"{CHECK}\ncheck(Solution().twice)", {"prefix": "make = list"}, [1, 1 / 3]),
        (CART % "prices and min(prices) < 0", CART % "False", KODCODE, {}, [1, 2 / 3]),
        (CART % "prices and min(prices) < 0", CART % "True", {"pytest": KODCODE}, {}, [1, 1 / 3]),
        ("print(int(input()) + 1)", "print(1)", None, {"test_cases": [{"input": "3", "output": 4}]}, [1, 0]),
        ("print(int(input()) + 1)", "print(1)", None, {"test_cases": json.dumps([["3", "4"]])}, [1, 0]),
        (TWICE % 2, TWICE % 3, None, {"test_cases": [[[[1, 2]], [2, 4]]], "fn_name": "twice"}, [1, 0]),
    ],
)
def test_programs_are_scored_by_tests_as_python_and_cases(
    right: str, wrong: str, truth: Any, info: dict[str, Any], shares: list[float]
) -> None:
    async def scores(**options: bool) -> list[Any]:
        scorer = SCORERS["code"].using(**options)
        return [await score_answer(scorer, program, truth, info) for program in (right, wrong)]

    assert asyncio.run(scores(all_or_nothing=True)) == [1.0, 0.0]
    assert asyncio.run(scores()) == pytest.approx(shares)


@pytest.mark.parametrize("truth", [None, "", "no tests", [], {"inputs": []}, ["assert f() > 1"], "[" * 100_000, 5])
def test_tests_that_cannot_be_read_are_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a list of tests"):
        asyncio.run(score_answer(SCORERS["code"], ADD, truth))
