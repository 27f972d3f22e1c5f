"""`ExpressionValue`: evaluates an expression, so that two expressions can be compared.

Expressions with variables are compared by their values at points. A value is a rational number while everything that
led to it is rational, and a number of 70 digits of mpmath from then on; of two such numbers, the difference counts by
its share of the values themselves or, where a sum cancels, of its summands.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

from agent_rl.errors import ToolError
from agent_rl.rewards.scorers.math.expression import Node, variables
from agent_rl.tools.builtin._calculator.values import FUNCTIONS, arithmetic, factorial, power

__all__ = ["ExpressionValue", "proportional"]

_MAX_BITS = 4000
_MAX_BINOMIAL = 1000
_MAX_EXPONENT = 10**4
_CLOSE = 1e-9
_DIGITS = 70
_SAME, _CANCELLED = 1e-50, 1e-55
"""How far two values may differ: as a share of them, and of what was added to get them."""
_NEAR_WHOLE = 1e-12
_POSITIVE, _NEGATIVE, _WHOLE = ((0.01, 0.2), (1.1, 1.9), (5, 9)), (-0.6, -2.6), (2, 12)
_POINTS = (*_POSITIVE, _NEGATIVE, _WHOLE)
"""Ranges of the variables at each point. At the negative one only real values count, because answers assume x > 0."""
_NO_VALUE = (ToolError, ArithmeticError, ValueError, RecursionError, KeyError, TypeError, NotImplementedError)
_SIGNS = {"add": "+", "mul": "*", "div": "/"}
_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln log sqrt factorial binomial"
_GROWING = ("sinh", "cosh", "fact", "binom")

_own = threading.local()


class ExpressionValue:
    """The value of an expression, for comparing."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def exact(self) -> Fraction | None:
        """The value as a rational number of at most 4,000 bits; None if it is not one."""
        return self._constant if isinstance(self._constant, Fraction) else None

    @cached_property
    def number(self) -> float | None:
        """The value as a real number; None if it is not real or has variables."""
        if self.exact is not None:
            return float(self.exact) if abs(self.exact) < 10**300 else None
        value = None if self._constant is None else complex(self._constant)
        return None if value is None or abs(value.imag) > _CLOSE * max(1.0, abs(value)) else value.real

    @cached_property
    def _constant(self) -> Any:
        """The value of an expression without variables; None if it has none."""
        return None if variables(self.node) else next((value for _, value, _, _ in _pairs(self, self)), None)

    def equals(self, other: ExpressionValue) -> bool:
        """Whether both have the same value wherever both have one: with variables, at two points at least."""
        if self.node == other.node:
            return True
        compared = 0
        for point, one, another, scale in _pairs(self, other):
            if not _close(one, another, scale):
                return False
            compared += point != _NEGATIVE
        return compared >= (2 if variables(self.node) | variables(other.node) else 1)


def proportional(one: ExpressionValue, other: ExpressionValue) -> int:
    """The sign of the real constant factor between `one` and `other`; 0 if they are not proportional."""
    pairs = [(left, right) for _, left, right, _ in _pairs(one, other) if left or right]
    if len(pairs) < 2 or not all(left and right for left, right in pairs):
        return 0
    ratios = [left / right for left, right in pairs]
    if not all(each.imag == 0 or _close(each.imag, 0, abs(each)) for each in ratios):
        return 0
    if not all(_close(each, ratios[0], 0) for each in ratios):
        return 0
    return 1 if ratios[0].real > 0 else -1


def _close(one: Any, other: Any, scale: Any) -> bool:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    return bool(abs(one - other) <= max(_SAME * max(abs(one), abs(other)), _CANCELLED * scale))


def _pairs(one: ExpressionValue, other: ExpressionValue) -> Iterator[tuple[tuple[float, float], Any, Any, Any]]:
    """The points at which both have a value, these, and the size of what was added to get them."""
    for point in _POINTS if variables(one.node) | variables(other.node) else (_WHOLE,):
        evaluation = _Evaluation(point)
        try:
            first, second = evaluation.value(one.node), evaluation.value(other.node)
        except _NO_VALUE:
            continue
        if not (isinstance(first, Fraction) and isinstance(second, Fraction)):
            first, second = evaluation.convert(first), evaluation.convert(second)
        if point != _NEGATIVE or max(abs(first.imag), abs(second.imag)) < _NEAR_WHOLE:
            yield point, first, second, evaluation.scale


class _Evaluation:
    """The values at one point; `scale` is the size of the largest summand so far."""

    def __init__(self, point: tuple[float, float]) -> None:
        self.point = point
        self.scale: Any = 0
        self.arithmetic, self.functions = _arithmetic()

    def convert(self, value: Any) -> Any:
        """The value as a number of mpmath."""
        if isinstance(value, Fraction):
            return self.arithmetic.mpf(value.numerator) / value.denominator
        return value

    def value(self, node: Node) -> Any:
        kind, *operands = node
        if kind == "num":
            return node[1]
        if kind == "var":
            return self._place(node[1])
        if kind == "const":
            mp = self.arithmetic
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.j}[node[1]]  # infinity has no value
        if kind == "fn":
            kind, *operands = operands
        values = [self.value(operand) for operand in operands]
        if all(isinstance(value, Fraction) for value in values):
            try:
                return _exactly(kind, *values)
            except _NO_VALUE:  # it is not rational
                pass
        return self._computed(kind, [self.convert(value) for value in values])

    def _computed(self, kind: str, values: list[Any]) -> Any:
        if kind in _GROWING and any(abs(value) > _MAX_EXPONENT for value in values):
            raise OverflowError
        if kind == "pow":
            return self._power(*values)
        if kind == "add":
            self.scale = max(self.scale, *map(abs, values))
        elif kind not in (*_SIGNS, "neg", "deg", "sqrt", "abs"):
            self.scale = max(self.scale, 1)  # sin(pi) is as inexact as pi
        return self.functions[kind](*values)

    def _power(self, base: Any, exponent: Any) -> Any:
        """A power; the odd root of a negative number is the real one, as in school."""
        if base and abs(exponent * self.arithmetic.log(abs(base))) > _MAX_EXPONENT:
            raise OverflowError
        if base.imag == exponent.imag == 0 and base.real < 0 and exponent.real != round(exponent.real):
            order = 1 / float(exponent.real)
            if abs(order - round(order)) < _NEAR_WHOLE and round(order) % 2:
                return -((-base.real) ** exponent.real)
        return base**exponent

    def _place(self, name: str) -> Fraction:
        digest = hashlib.blake2b(f"{name} {self.point}".encode("utf-8", "replace"), digest_size=5).digest()
        low, high = map(Fraction, self.point)
        place = low + (high - low) * Fraction(int.from_bytes(digest, "big"), 2**40)
        return Fraction(math.floor(place)) if self.point == _WHOLE else place


def _exactly(kind: str, *values: Fraction) -> Fraction:
    """The rational result of an operation or a function.

    Raises:
        ToolError, ArithmeticError, KeyError, ValueError: the value does not exist, or is too long.
    """
    match kind:
        case "add" | "mul" | "div":
            value = arithmetic(_SIGNS[kind], *values)
        case "neg" | "deg":
            value = values[0] * (-1 if kind == "neg" else 1)
        case "pow":
            value = power(*values)
        case "fact":
            value = factorial(*values)
        case "binom":
            top, bottom = values
            if top.denominator != 1 or bottom.denominator != 1 or not 0 <= top <= _MAX_BINOMIAL:
                raise ValueError("not a binomial coefficient")
            value = Fraction(math.comb(top.numerator, bottom.numerator))
        case _:
            value = FUNCTIONS[kind][0](*values)
    if not isinstance(value, Fraction) or max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise ValueError("not rational, or too long")
    return value


def _arithmetic() -> tuple[Any, dict[str, Callable[..., Any]]]:
    """This thread's arithmetic, because threads must not share one, and its functions by the kind of node."""
    if not hasattr(_own, "arithmetic"):
        from mpmath.ctx_mp import MPContext

        mp = MPContext()
        mp.dps = _DIGITS
        functions = {name: getattr(mp, name) for name in _NAMES.split()} | {
            "lg": lambda value: mp.log(value) / mp.log(10),
            "abs": abs,
            "floor": lambda value: mp.floor(value + _SAME),
            "ceil": lambda value: mp.ceil(value - _SAME),
            "neg": lambda value: 0 - value,  # not -x: the sign of a zero would choose a branch
            "deg": lambda value: value,
            "add": lambda left, right: left + right,
            "mul": lambda left, right: left * right,
            "div": lambda left, right: left / right,
        }
        functions |= {"fact": functions["factorial"], "binom": functions["binomial"]}
        _own.arithmetic = mp, functions
    found: tuple[Any, dict[str, Callable[..., Any]]] = _own.arithmetic
    return found
