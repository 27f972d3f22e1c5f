"""Compares the results of an untrusted program with the expected ones: pure functions on the trusted side.

A result is text and stays text until `read_result` has made exact builtin types of it. Comparing walks
along the expected value, so a hostile one cannot make it go deeper or take longer than the expected one.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

__all__ = ["longest_text", "read_result", "same_output", "same_value"]

_FRACTIONAL = re.compile(r"[.eE]")
_LONGEST = 1000  # characters of a number with a point that is compared with a whole one
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # one way to match, whatever the text


def read_result(text: str) -> Any:
    """The value that a program wrote as JSON.

    Raises:
        ValueError: it is not JSON, or nested too deep to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def longest_text(expected: Any) -> int:
    """Characters of JSON beyond which nothing equals `expected`: reading more takes the event loop's time.

    A number that equals another one, or is near it, may be written longer, but not endlessly.
    """
    try:
        return 1024 + 16 * len(json.dumps(expected))
    except ValueError:  # a whole number of more digits than Python writes; the child cannot write it either
        return 1024


def same_value(got: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether two values from JSON are equal: a bool is no number, 1 equals 1.0, NaN equals nothing.

    Args:
        got: from `read_result`.
        expected: from `jail.call.plain`.
        tolerance: how far apart a float and a number may be, absolutely and relative to the expected one.
    """
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return False
        return all(same_value(one, other, tolerance) for one, other in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return False
        return all(same_value(got[key], value, tolerance) for key, value in expected.items())
    if _is_number(expected) and _is_number(got):
        near = float in (type(got), type(expected)) and _near(got, expected, tolerance)
        return bool(got == expected) or near
    return type(got) is type(expected) and bool(got == expected)


def same_output(got: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two outputs are equal but for white space at the ends of lines and empty lines at the end.

    Args:
        got: standard output of the program.
        expected: what it should be.
        tolerance: above 0, words that are numbers with a point or an exponent may differ by this much, absolutely, and
            where the expected one has it, relative to that. Whole numbers are equal or not.
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
        one == other or bool(_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and _near_words(one, other, tolerance))
        for one, other in zip(got_words, expected_words, strict=True)
    )


def _near_words(got: str, expected: str, tolerance: float) -> bool:
    if _FRACTIONAL.search(expected):
        return _near(float(got), float(expected), tolerance)
    if not _FRACTIONAL.search(got) or max(len(got), len(expected)) > _LONGEST:
        return got.lstrip("+0") == expected.lstrip("+0")
    return abs(Fraction(got) - Fraction(expected)) <= tolerance


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _near(got: float, expected: float, tolerance: float) -> bool:
    try:
        return tolerance > 0 and math.isclose(got, expected, rel_tol=0, abs_tol=tolerance * max(1.0, abs(expected)))
    except OverflowError:  # a whole number beyond the floats
        return False
