"""The calculator's numbers, and its operators and functions, which all have a bounded cost.

A `Value` is a `Fraction` as long as every step is exact, and a `float` after the first irrational step. Where an
integer is needed (floor, gcd, ...), a float is rounded to 13 digits and treated as exact: floor(log(243, 3)) is 5.
Functions raise a `ToolError`, or the exceptions that Python's own functions raise, such as OverflowError.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce

from agent_rl.errors import ToolError

Value = Fraction | float

MAX_BITS = 10_000
"""Maximum number of bits in a numerator or denominator in any step, about 3000 digits."""
MAX_FACTORIAL = 1000
MAX_ROUND_DIGITS = 50


def too_large() -> ToolError:
    return ToolError("the number is too large to compute here")


def checked(value: Value) -> Value:
    """Return `value` after checking it.

    Raises:
        ToolError: the value exceeds the limits or is not a real number.
    """
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise too_large()
    elif isinstance(value, complex):
        raise ToolError("a root or a fractional power of a negative number has no real value")
    elif not math.isfinite(value):
        raise too_large()
    return value


def _power(base: Value, exponent: Value) -> Value:
    """Return `base ** exponent`, exact if the result is rational."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and 1 < exponent.denominator <= 64 and base >= 0:
        numerator, denominator = (_root(part, exponent.denominator) for part in (base.numerator, base.denominator))
        if numerator is not None and denominator is not None:
            base, exponent = Fraction(numerator, denominator), Fraction(exponent.numerator)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if bits * abs(exponent) > MAX_BITS:  # reject a huge power before computing it
            raise too_large()
        return base**exponent.numerator
    value: Value = float(base) ** float(exponent)
    return value


def _root(number: int, degree: int) -> int | None:
    """Return the root of a non-negative `number` with the given `degree`, or None if the root is not an integer."""
    if degree == 2:
        root = math.isqrt(number)
    elif number.bit_length() > 1000:  # the number does not fit a float; in practice, exact roots are small
        return None
    else:
        root = round(number ** (1 / degree))
    return root if root**degree == number else None


def _factorial(value: Value) -> Value:
    number = _integer(value, "factorial")
    if number < 0:
        raise ToolError("the factorial of a negative number does not exist")
    if number > MAX_FACTORIAL:
        raise too_large()
    return Fraction(math.factorial(number))


def _log(value: Value, base: Value | None = None) -> Value:
    if base is None:
        return _logarithm(math.log, value)
    divisor = _logarithm(math.log, base)
    if divisor == 0:
        raise ToolError("a logarithm to base 1 does not exist")
    return _logarithm(math.log, value) / divisor


def _logarithm(function: Callable[[float | int], float], value: Value) -> float:
    if value <= 0:
        raise ToolError("the logarithm of zero or of a negative number does not exist")
    if 1e-300 < value < 1e300:
        return function(float(value))
    numerator, denominator = value.as_integer_ratio()  # the logarithms in `math` accept integers of any size
    return function(numerator) - function(denominator)


def _exact(value: Value) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(f"{value:.13g}")


def _integer(value: Value, purpose: str) -> int:
    exact = _exact(value)
    if exact.denominator != 1:
        raise ToolError(f"{purpose} needs an integer")
    return exact.numerator


def _round(value: Value, digits: Value = Fraction(0)) -> Value:
    """Round half away from zero, as taught in school; Python's round(2.5) is 2."""
    places = _integer(digits, "round(x, digits)")
    if abs(places) > MAX_ROUND_DIGITS:
        raise ToolError(f"round takes at most {MAX_ROUND_DIGITS} digits")
    scale = Fraction(10) ** places
    exact = _exact(value)
    rounded = math.floor(abs(exact) * scale + Fraction(1, 2)) / scale
    return -rounded if exact < 0 else rounded


def _fold(function: Callable[[int, int], int], name: str) -> Callable[..., Value]:
    def apply(*values: Value) -> Value:
        total = _integer(values[0], name)
        for value in values:  # folds in the first value twice, so that gcd(-4) is 4
            total = function(total, _integer(value, name))
            checked(Fraction(total))
        return Fraction(total)

    return apply


OPERATIONS: dict[str, Callable[..., Value]] = {
    "num": lambda value: value,
    "neg": operator.neg,
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": lambda left, right: Fraction(math.floor(_exact(left) / _exact(right))),
    "mod": operator.mod,
    "pow": _power,
    "fact": _factorial,
}
"""Functions for the operations in `reader.Reader`, by name; // and % round toward minus infinity, as in Python."""

CONSTANTS: dict[str, Value] = {"pi": math.pi, "e": math.e}

FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int | None]] = {
    "sqrt": (lambda value: _power(value, Fraction(1, 2)), 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (lambda value: Fraction(math.floor(_exact(value))), 1, 1),
    "ceil": (lambda value: Fraction(math.ceil(_exact(value))), 1, 1),
    "min": (lambda *values: min(values), 1, None),
    "max": (lambda *values: max(values), 1, None),
    "sum": (lambda *values: reduce(lambda left, right: checked(left + right), values), 1, None),
    "gcd": (_fold(math.gcd, "gcd"), 1, None),
    "lcm": (_fold(math.lcm, "lcm"), 1, None),
    "pow": (_power, 2, 2),
    "factorial": (_factorial, 1, 1),
    "exp": (math.exp, 1, 1),
    "log": (_log, 1, 2),
    "ln": (_log, 1, 1),
    "log10": (lambda value: _logarithm(math.log10, value), 1, 1),
    "log2": (lambda value: _logarithm(math.log2, value), 1, 1),
    "sin": (lambda value: round(math.sin(value), 15), 1, 1),  # rounded so that sin(pi) is 0
    "cos": (lambda value: round(math.cos(value), 15), 1, 1),
    "tan": (lambda value: round(math.tan(value), 15), 1, 1),
}
"""For each name, the function and its minimum and maximum number of arguments (None means any number)."""
