import asyncio
import json
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.scorers import SCORERS, score_answer
from agent_rl.rewards.scorers.python_tests import read_python_tests
from agent_rl.sandbox import FunctionCase

LEETCODE = """
def check(candidate):
    assert candidate(nums=[1, 2]) == [2, 4]
    assert candidate(make([3])) == [6]
    assert not candidate([])
"""
KODCODE = """
import pytest
from solution import Cart

def test_total():
    cart = Cart([1, 2])
    expected = 3
    assert cart.total() == expected

class TestErrors:
    def test_negative(self):
        with pytest.raises(ValueError):
            Cart([-1])
"""


def test_literal_calls_are_cases_and_the_rest_is_run_as_functions() -> None:
    cases, functions = read_python_tests(LEETCODE, "Solution().twice")
    assert cases[0] == FunctionCase("twice", [], [2, 4], {"nums": [1, 2]})
    assert [case.expected for case in cases] == [[2, 4], [6], False]
    assert "candidate = Solution().twice" in functions
    assert "[6]" not in functions


def test_the_program_is_not_shown_what_is_expected() -> None:
    cases, functions = read_python_tests("def test():\n    want = 417\n    got = f(2)\n    assert got == want")
    assert [case.expected for case in cases] == [417]
    assert "417" not in functions
    assert "got = f(2)" in functions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("assert f(1) == 1 / 4", 0.25),
        ("assert 3 == f(1)", 3),
        ("assert abs(f(1) - 1.5) < 1e-3", 1.5),
        ("assert f(1) is None", None),
        ("assert f(1) == [-inf]", [float("-inf")]),
        ("assert f(1)", True),
    ],
)
def test_many_asserts_are_read(text: str, expected: Any) -> None:
    (case,), _ = read_python_tests(f"def test_f():\n    {text}")
    assert case.expected == expected


@pytest.mark.parametrize(
    "text", ["assert f(1) == g(1)", "assert f(1) < 3", "for n in [1]:\n        assert f(n) == 1", "pass", "("]
)
def test_what_would_have_to_be_run_as_it_stands_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="tests"):
        read_python_tests(f"def test_f():\n    {text}")


def test_check_needs_an_entry_point() -> None:
    with pytest.raises(ConfigError, match="entry_point"):
        read_python_tests(LEETCODE)
    assert len(read_python_tests(f"{LEETCODE}\ncheck(twice)")[0]) == 3


TWICE = "```python\nclass Solution:\n    def twice(self, nums):\n        return [%s * n for n in nums]\n```"
CART = """```python
class Cart:
    def __init__(self, prices):
        if %s:
            raise ValueError
        self.prices = prices

    def total(self):
        return sum(self.prices)
```"""


@pytest.mark.parametrize(
    ("right", "wrong", "truth", "info"),
    [
        (TWICE % 2, TWICE % 3, {"test": LEETCODE, "entry_point": "Solution().twice", "prompt": "make = list"}, {}),
        (TWICE % 2, TWICE % 3, f"{LEETCODE}\ncheck(Solution().twice)", {"prefix": "make = list"}),
        (CART % "min(prices) < 0", CART % "False", KODCODE, {}),
        (CART % "min(prices) < 0", CART % "False", {"pytest": KODCODE}, {}),
        ("print(int(input()) + 1)", "print(1)", None, {"test_cases": [{"input": "3", "output": 4}]}),
        ("print(int(input()) + 1)", "print(1)", None, {"test_cases": json.dumps([["3", "4"]])}),
        (TWICE % 2, TWICE % 3, None, {"test_cases": [[[[1, 2]], [2, 4]]], "fn_name": "twice"}),
    ],
)
def test_programs_are_scored_by_them(right: str, wrong: str, truth: Any, info: dict[str, Any]) -> None:
    async def scores() -> list[Any]:
        return [await score_answer(SCORERS["code_all"], program, truth, info) for program in (right, wrong)]

    assert asyncio.run(scores()) == [1.0, 0.0]
