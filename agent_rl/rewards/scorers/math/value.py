"""`ExpressionValue`: evaluates an expression, so that two expressions can be compared.

Expressions are compared by their values at several points, computed by mpmath with 90 digits. Two values are equal
if their difference is tiny relative to the values or, where a sum cancels, relative to its summands.
"""

from __future__ import annotations

import hashlib
import math
import operator
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

from agent_rl.rewards.scorers.math.expression import Node, variables

_MAX_EXPONENT = 10**4
_DIGITS = 90
_SAME, _CANCELLED, _NOTHING = 1e-72, 1e-76, 1e-20
"""Tolerances for equal values: relative to the larger value and to the largest summand, and a cap on the latter."""
_NEAR_WHOLE = 1e-12
_POSITIVE, _NEGATIVE, _WHOLE = ((0.01, 0.2), (1.1, 1.9), (5, 9)), (-0.6, -2.6), (2, 12)
_POINTS = (*_POSITIVE, _NEGATIVE, _WHOLE)
"""For each point, the range of the variables. At the negative point, complex values do not count, because answers often
assume x > 0."""
_NO_VALUE = (ArithmeticError, ValueError, RecursionError, KeyError, TypeError, NotImplementedError)
_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln sqrt"
_GROWING = ("sinh", "cosh", "fact", "binom")

_own = threading.local()


class ExpressionValue:
    """The value of an expression, which can be compared with the values of other expressions."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def number(self) -> Any:
        """The value as an mpmath real number, or None if it is not real or the expression has variables."""
        if variables(self.node):
            return None
        value = next((value for _, value, _, _ in _pairs(self, self)), None)
        return value.real if value is not None and _close(value.imag, 0, abs(value)) else None

    def equals(self, other: ExpressionValue) -> bool:
        """Whether two expressions are equal at all points (two or more with variables) where both have a value."""
        if self.node == other.node:
            return True
        compared = 0
        for point, one, another, scale in _pairs(self, other):
            if not _close(one, another, scale):
                return False
            compared += point != _NEGATIVE
        return compared >= (2 if variables(self.node) | variables(other.node) else 1)


def proportional(one: ExpressionValue, other: ExpressionValue) -> int:
    """Return the sign of the constant real factor between two expressions, or 0 if they are not proportional."""
    pairs = [(left, right) for _, left, right, _ in _pairs(one, other) if left or right]
    if len(pairs) < 2 or not all(left and right for left, right in pairs):
        return 0
    ratios = [left / right for left, right in pairs]
    if not all(_close(ratio.imag, 0, abs(ratio)) and _close(ratio, ratios[0], 0) for ratio in ratios):
        return 0
    return 1 if ratios[0].real > 0 else -1


def _close(one: Any, other: Any, scale: Any) -> bool:
    return bool(abs(one - other) <= max(_SAME * max(abs(one), abs(other)), min(_CANCELLED * scale, _NOTHING)))


def _pairs(one: ExpressionValue, other: ExpressionValue) -> Iterator[tuple[tuple[float, float], Any, Any, Any]]:
    """Yield the points where both expressions have a value, with the two values and the size of the largest summand."""
    for point in _POINTS if variables(one.node) | variables(other.node) else (_WHOLE,):
        evaluation = _Evaluation(point)
        try:
            first, second = evaluation.value(one.node), evaluation.value(other.node)
        except _NO_VALUE:
            continue
        if point != _NEGATIVE or max(abs(first.imag), abs(second.imag)) < _NEAR_WHOLE:
            yield point, first, second, evaluation.scale


class _Evaluation:
    """Evaluates expressions at one point; `scale` is the size of the largest summand so far."""

    def __init__(self, point: tuple[float, float]) -> None:
        self.point = point
        self.scale: Any = 0
        self.arithmetic, self.functions = _arithmetic()

    def value(self, node: Node) -> Any:
        kind, *operands = node
        if kind == "num":
            return self.arithmetic.mpf(node[1].numerator) / node[1].denominator
        if kind == "var":
            return self._place(node[1])
        if kind == "const":
            mp = self.arithmetic
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.j}[node[1]]  # infinity has no value
        if kind == "fn":
            kind, *operands = operands
        values = [self.value(operand) for operand in operands]
        if kind in _GROWING and any(abs(value) > _MAX_EXPONENT for value in values):
            raise OverflowError
        if kind == "pow":
            return self._power(*values)
        if kind == "add":
            self.scale = max(self.scale, *map(abs, values))
        elif kind not in ("mul", "div", "neg", "deg", "sqrt", "abs"):
            self.scale = max(self.scale, 1)  # the result of sin(pi) has the rounding error of pi
        return self.functions[kind](*values)

    def _power(self, base: Any, exponent: Any) -> Any:
        """Return a power; an odd root of a negative number is the real root, as taught in school."""
        if base and abs(exponent * self.arithmetic.log(abs(base))) > _MAX_EXPONENT:
            raise OverflowError
        if base.imag == exponent.imag == 0 and base.real < 0 and exponent.real != round(exponent.real):
            order = 1 / float(exponent.real)
            if abs(order - round(order)) < _NEAR_WHOLE and round(order) % 2:
                return -((-base.real) ** exponent.real)
        return base**exponent

    def _place(self, name: str) -> Any:
        digest = hashlib.blake2b(f"{name} {self.point}".encode("utf-8", "replace"), digest_size=5).digest()
        low, high = map(Fraction, self.point)
        place = low + (high - low) * Fraction(int.from_bytes(digest, "big"), 2**40)
        return self.arithmetic.mpf(math.floor(place) if self.point == _WHOLE else float(place))


def _arithmetic() -> tuple[Any, dict[str, Callable[..., Any]]]:
    """Return this thread's own mpmath context, because threads must not share one, and its functions by node kind."""
    if not hasattr(_own, "arithmetic"):
        from mpmath.ctx_mp import MPContext

        mp = MPContext()
        mp.dps = _DIGITS
        functions = {name: getattr(mp, name) for name in _NAMES.split()} | {
            "fact": mp.factorial,
            "binom": mp.binomial,
            "log": mp.log,
            "lg": mp.log10,
            "abs": abs,
            "floor": lambda value: mp.floor(value + _SAME),
            "ceil": lambda value: mp.ceil(value - _SAME),
            "neg": lambda value: 0 - value,  # not -value, because the sign of a negative zero would select a branch
            "deg": lambda value: value,
            "add": operator.add,
            "mul": operator.mul,
            "div": operator.truediv,
        }
        _own.arithmetic = mp, functions
    arithmetic: tuple[Any, dict[str, Callable[..., Any]]] = _own.arithmetic
    return arithmetic
