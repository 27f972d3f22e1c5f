"""Pure functions, run on the trusted side, that compare an untrusted program's results with the expected results.

A result stays text until `read_result` converts it to exact builtin types. The structure of the expected value drives
the comparison, so a hostile result cannot make the comparison recurse deeper or take longer.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

_NUMBERS = (int, float)
_FRACTIONAL = re.compile(r"[.eE]")
_LONGEST = 1000  # maximum length of a decimal and a whole number that are compared by value
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # one way to match, so linear time


def read_result(text: str) -> Any:
    """Parse the value that a program wrote as JSON.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def longest_text(expected: Any) -> int:
    """Return the maximum length of JSON to read; a longer value cannot equal `expected`.

    The program may write a number with more digits than the expected number has, up to a limit.
    """
    try:
        return 1024 + 16 * len(json.dumps(expected))
    except ValueError:  # Python cannot write numbers with that many digits, and neither can the child
        return 1024


def same_value(got: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether two JSON values are equal: a bool is not a number, 1 equals 1.0, and NaN equals nothing.

    Args:
        got: the program's value, from `read_result`.
        expected: the expected value, from `jail.call.plain`.
        tolerance: allowed difference if one of the values is a float, absolute and relative to the expected value.
    """
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return False
        return all(same_value(item, wanted, tolerance) for item, wanted in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return False
        return all(same_value(got[key], value, tolerance) for key, value in expected.items())
    if type(expected) in _NUMBERS and type(got) in _NUMBERS:
        near = float in (type(got), type(expected)) and _near(got, expected, tolerance)
        return bool(got == expected) or near
    return type(got) is type(expected) and bool(got == expected)


def same_output(got: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two outputs are equal, ignoring whitespace at line ends and empty lines at the end.

    Args:
        got: the program's standard output.
        expected: the expected output.
        tolerance: allowed difference for words that are numbers with a point or an exponent, absolute and, if the
            expected number has a point or an exponent, relative to it. Whole numbers must be equal.
    """
    got_lines, expected_lines = _trimmed(got), _trimmed(expected)
    if got_lines == expected_lines:
        return True
    if not tolerance or len(got_lines) != len(expected_lines):
        return False
    return all(_same_words(*pair, tolerance) for pair in zip(got_lines, expected_lines, strict=True))


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_words(got: str, expected: str, tolerance: float) -> bool:
    got_words, expected_words = got.split(), expected.split()
    return len(got_words) == len(expected_words) and all(
        word == target
        or bool(_NUMBER.fullmatch(word) and _NUMBER.fullmatch(target) and _near_words(word, target, tolerance))
        for word, target in zip(got_words, expected_words, strict=True)
    )


def _near_words(got: str, expected: str, tolerance: float) -> bool:
    if _FRACTIONAL.search(expected):
        return _near(float(got), float(expected), tolerance)
    if not _FRACTIONAL.search(got) or max(len(got), len(expected)) > _LONGEST:
        return got.lstrip("+0") == expected.lstrip("+0")
    return abs(Fraction(got) - Fraction(expected)) <= tolerance


def _near(got: float, expected: float, tolerance: float) -> bool:
    try:
        return tolerance > 0 and math.isclose(got, expected, rel_tol=0, abs_tol=tolerance * max(1.0, abs(expected)))
    except OverflowError:  # a whole number is too large for a float
        return False
