"""Numbers of the calculator: operators and functions with bounded cost.

A `Value` is a `Fraction` while everything that led to it is exact, and a `float` from the first irrational step on. A
float is taken as exact again where an integer is needed (floor, gcd, ...), after rounding to 13 digits, so that
floor(log(243, 3)) is 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce

from agent_rl.errors import ToolError

__all__ = ["CONSTANTS", "FUNCTIONS", "Value", "arithmetic", "checked", "factorial", "power", "too_large"]

Value = Fraction | float

MAX_BITS = 10_000
"""Bits of a numerator or a denominator on the way; about 3000 digits."""
MAX_FACTORIAL = 1000
MAX_ROUND_DIGITS = 50


def too_large() -> ToolError:
    return ToolError("the number is too large to compute here")


def checked(value: Value) -> Value:
    """`value` itself.

    Raises:
        ToolError: when it is beyond the bounds or not a number.
    """
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise too_large()
    elif not math.isfinite(value):
        raise too_large()
    return value


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    """One of + - * / // %; // and % round towards minus infinity, as in Python."""
    try:
        if operator == "+":
            return checked(left + right)
        if operator == "-":
            return checked(left - right)
        if operator == "*":
            return checked(left * right)
        if right == 0:
            raise ToolError("division by zero")
        if operator == "/":
            return checked(left / right)
        if operator == "//":
            return floor(_exact(left) / _exact(right))
        return checked(left % right)
    except OverflowError:  # a large fraction meets a float
        raise too_large() from None


def power(base: Value, exponent: Value) -> Value:
    """`base ** exponent` over the reals, exact where the result is rational."""
    if base == 0 and exponent < 0:
        raise ToolError("division by zero (zero to a negative power)")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        return _integer_power(base, exponent.numerator)
    if base < 0:
        raise ToolError("a negative number to a fractional power has no real value")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator <= 64:
        numerator, denominator = (_root(part, exponent.denominator) for part in (base.numerator, base.denominator))
        if numerator is not None and denominator is not None:
            return _integer_power(Fraction(numerator, denominator), exponent.numerator)
    try:
        return checked(float(base) ** float(exponent))
    except OverflowError:
        raise too_large() from None


def factorial(value: Value) -> Fraction:
    number = _integer(value, "factorial")
    if number < 0:
        raise ToolError("the factorial of a negative number does not exist")
    if number > MAX_FACTORIAL:
        raise too_large()
    return Fraction(math.factorial(number))


def _integer_power(base: Value, exponent: int) -> Value:
    if isinstance(base, Fraction):
        if base in (0, 1, -1):  # of any size
            return base ** (exponent % 2 if base == -1 else min(exponent, 1) if base == 0 else 0)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if bits * abs(exponent) > MAX_BITS:  # before computing it
            raise too_large()
        return checked(base**exponent)
    try:
        return checked(base ** float(exponent))
    except OverflowError:
        raise too_large() from None


def _root(number: int, degree: int) -> int | None:
    """The integer root of this degree of `number` (not negative), if there is one."""
    if degree == 2:
        root = math.isqrt(number)
    elif number.bit_length() > 1000:  # beyond float's range; the exact roots that people ask for are small
        return None
    else:
        root = round(number ** (1 / degree))
    return root if root**degree == number else None


def _sqrt(value: Value) -> Value:
    if value < 0:
        raise ToolError("the square root of a negative number is not real")
    return power(value, Fraction(1, 2))


def _log(value: Value, base: Value | None = None) -> Value:
    if base is None:
        return _logarithm(math.log, value)
    divisor = _logarithm(math.log, base)
    if divisor == 0:
        raise ToolError("a logarithm to base 1 does not exist")
    return checked(_logarithm(math.log, value) / divisor)


def _logarithm(function: Callable[[float | int], float], value: Value) -> float:
    if value <= 0:
        raise ToolError("the logarithm of zero or of a negative number does not exist")
    try:
        return function(float(value)) if float(value) > 0 else _wide_logarithm(function, value)
    except OverflowError:
        return _wide_logarithm(function, value)


def _wide_logarithm(function: Callable[[float | int], float], value: Value) -> float:
    """For fractions outside of float's range: math takes integers of any size."""
    assert isinstance(value, Fraction)
    return function(value.numerator) - function(value.denominator)


def _real(function: Callable[[float], float]) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        try:
            return checked(function(float(value)))
        except OverflowError:
            raise too_large() from None

    return apply


def _circular(function: Callable[[float], float]) -> Callable[[Value], Value]:
    """Rounded to 15 places, so that sin(pi) is 0."""
    return _real(lambda value: round(function(value), 15))


def _exact(value: Value) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(f"{value:.13g}")


def _integer(value: Value, purpose: str) -> int:
    exact = _exact(value)
    if exact.denominator != 1:
        raise ToolError(f"{purpose} needs an integer")
    return exact.numerator


def floor(value: Value) -> Fraction:
    return Fraction(math.floor(_exact(value)))


def _round(value: Value, digits: Value = Fraction(0)) -> Value:
    """Half away from zero, as taught in school; Python's round(2.5) is 2."""
    places = _integer(digits, "round(x, digits)")
    if abs(places) > MAX_ROUND_DIGITS:
        raise ToolError(f"round takes at most {MAX_ROUND_DIGITS} digits")
    scale = Fraction(10) ** places
    exact = _exact(value)
    rounded = math.floor(abs(exact) * scale + Fraction(1, 2)) / scale
    return checked(-rounded if exact < 0 else rounded)


def _fold(function: Callable[[int, int], int], name: str) -> Callable[..., Value]:
    def apply(*values: Value) -> Value:
        total = _integer(values[0], name)
        for value in values:  # the first one too: gcd(-4) is 4
            total = function(total, _integer(value, name))
            checked(Fraction(total))
        return Fraction(total)

    return apply


CONSTANTS: dict[str, Value] = {"pi": math.pi, "e": math.e}

FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int | None]] = {
    "sqrt": (_sqrt, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (floor, 1, 1),
    "ceil": (lambda value: Fraction(math.ceil(_exact(value))), 1, 1),
    "min": (lambda *values: min(values), 1, None),
    "max": (lambda *values: max(values), 1, None),
    "sum": (lambda *values: reduce(partial(arithmetic, "+"), values), 1, None),
    "gcd": (_fold(math.gcd, "gcd"), 1, None),
    "lcm": (_fold(math.lcm, "lcm"), 1, None),
    "pow": (power, 2, 2),
    "factorial": (factorial, 1, 1),
    "exp": (_real(math.exp), 1, 1),
    "log": (_log, 1, 2),
    "ln": (_log, 1, 1),
    "log10": (lambda value: _logarithm(math.log10, value), 1, 1),
    "log2": (lambda value: _logarithm(math.log2, value), 1, 1),
    "sin": (_circular(math.sin), 1, 1),
    "cos": (_circular(math.cos), 1, 1),
    "tan": (_circular(math.tan), 1, 1),
}
"""Name -> function, fewest and most arguments (None: any number)."""
