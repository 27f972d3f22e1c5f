"""Tests that compute what they expect become tests that state it."""

import pytest

from agent_rl.data.recorded_tests import is_stated, recorded
from agent_rl.errors import ConfigError

pytestmark = pytest.mark.slow

STATED = """
NAME = 'a'
def check(candidate):
    '''About.'''
    assert True, "text"
    assert candidate([1, -2], k="x") == {"a": (1, 2)}
    assert candidate(1)
    assert not candidate(2)
    assert abs(candidate(1.5) - 0.5) < 1e-6
"""
SOLUTION = "def add(x, y=0):\n    x, total = list(x), sum(x) + y\n    return total, {total}\n"


def test_asserts_of_a_call_and_a_literal_are_stated() -> None:
    assert is_stated(STATED)


@pytest.mark.parametrize(
    "body",
    [
        "for x in range(3):\n        assert candidate(x) == 1",
        "assert candidate(1) == helper(1)",
        "assert tuple(candidate(1)) == (1,)",
        "assert abs(candidate(1) - helper(1)) < 1e-6",
        "x = 1",
    ],
)
def test_anything_else_is_not(body: str) -> None:
    assert not is_stated(f"def check(candidate):\n    {body}\n")


def test_calls_and_values_of_the_solution_are_written_down() -> None:
    test = "def check(candidate):\n    for y in (1, 1, 2):\n        assert candidate([1, 2], y=y)[0] == 3 + y\n"
    stated = recorded(test, "add", SOLUTION)
    assert stated == (
        "def check(candidate):\n"
        "    assert candidate([1, 2], y=1) == (4, {4})\n"
        "    assert candidate([1, 2], y=2) == (5, {5})\n"
    )
    assert is_stated(stated)


def test_random_numbers_are_the_same_each_time() -> None:
    test = "import random\ndef check(candidate):\n    candidate([random.random()])\n"
    assert recorded(test, "add", SOLUTION) == recorded(test, "add", SOLUTION)


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("def check(candidate):\n    assert candidate([1])[0] == 2\n", "does not pass it (AssertionError"),
        ("def check(candidate):\n    candidate([object()])\n", "does not pass it (TypeError"),
        ("def check(candidate):\n    candidate([], y=float('inf'))\n", "values that have no literal"),
    ],
)
def test_a_solution_that_fails_is_an_error(test: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recorded(test, "add", SOLUTION)
    assert problem in caught.value.problem
