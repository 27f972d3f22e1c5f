"""Evaluates expressions at points by mpmath: in floating point, and to 70 digits where floating point finds two equal.

Floating point cannot tell 2^100 + x from 2^100, nor e^-50 from 0. To 70 digits a difference is compared with the values
themselves or, where a sum cancels, with its summands. Whatever is not finite in floating point must not be given to
`agree` and `steady`: its digits could be too many.
"""

from __future__ import annotations

import cmath
import threading
import zlib
from collections.abc import Callable
from itertools import combinations
from typing import Any

from agent_rl.rewards.scorers.math.expression import Node, variables

__all__ = ["NEGATIVE", "agree", "floats", "steady"]

_DIGITS = 70
_CLOSE = 1e-50
_CANCELLED = 1e-55
_MAX_EXPONENT = 10**4
_WHOLE = 1e-12
"""What an exponent may be off an odd root's, and a float below the integer that it stands for."""
_RANGES = ((0.6, 2.6), (0.6, 2.6), (0.6, 2.6), (-0.6, -2.6), (-0.6, -2.6), (0.01, 0.2), (1.1, 1.9), (5.0, 9.0), (2, 12))
"""Of the variables at the points; they are whole numbers at the last one."""
_OF_FLOATS, _OF_DIGITS = range(5), range(5, 9)
NEGATIVE = (3, 4)
"""The points at which all variables are negative; there only real values are compared, because answers assume x > 0."""
_NO_VALUE = (ArithmeticError, ValueError, RecursionError, KeyError, TypeError, NotImplementedError)
_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln log sqrt factorial binomial"

_own = threading.local()


def floats(node: Node) -> tuple[complex | None, ...]:
    """The values at five points in floating point; None for a point where it is undefined."""
    values = (_value(node, point) for point in _OF_FLOATS)
    return tuple(value if value is not None and cmath.isfinite(value) else None for value in values)


def agree(one: Node, other: Node) -> bool:
    """Whether two expressions have the same 50 digits wherever both have a value: at two of four points at least."""
    points = _OF_DIGITS if variables(one) | variables(other) else _OF_DIGITS[:1]
    pairs = [pair for point in points if (pair := _pair(one, other, point))]
    return len(pairs) >= min(2, len(points)) and all(
        abs(first - second) <= max(_CLOSE * max(abs(first), abs(second)), _CANCELLED * scale)
        for first, second, scale in pairs
    )


def steady(one: Node, other: Node) -> bool:
    """Whether the quotient of two expressions is the same at all points where both have a value, two at least."""
    pairs = [pair for point in _OF_DIGITS if (pair := _pair(one, other, point))]
    return len(pairs) >= 2 and all(
        abs(first * another - second * other_first) <= _CLOSE * max(abs(first * another), abs(second * other_first))
        for (first, second, _), (other_first, another, _) in combinations(pairs, 2)
    )


def _value(node: Node, point: int) -> Any:
    try:
        return _Evaluation(point).value(node)
    except _NO_VALUE:
        return None


def _pair(one: Node, other: Node, point: int) -> tuple[Any, Any, Any] | None:
    """Both values at a point and the size of what was added to get them; None where one of them has no value."""
    evaluation = _Evaluation(point)
    try:
        return evaluation.value(one), evaluation.value(other), evaluation.scale
    except _NO_VALUE:
        return None


class _Evaluation:
    """The values at one point; `scale` is the size of the largest summand so far."""

    def __init__(self, point: int) -> None:
        self.arithmetic, self.functions = _arithmetic(exact=point in _OF_DIGITS)
        self.point = point
        self.scale: Any = 0

    def value(self, node: Node) -> Any:
        kind, *operands = node
        mp = self.arithmetic
        if kind == "num":
            return mp.mpf(node[1].numerator) / node[1].denominator
        if kind == "var":
            return self._place(node[1])
        if kind == "const":
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.j}[node[1]]  # of infinity there is none
        if kind == "fn":
            kind, *operands = operands
            if kind not in ("sqrt", "abs"):
                self.scale = max(self.scale, 1)  # sin(pi) is as inexact as pi
        values = [self.value(operand) for operand in operands]
        if kind == "add":
            self.scale = max(self.scale, *map(abs, values))
        return self._power(*values) if kind == "pow" else self.functions[kind](*values)

    def _power(self, base: Any, exponent: Any) -> Any:
        """A power; the odd root of a negative number is the real one, as in school."""
        if base and abs(exponent * self.arithmetic.log(abs(base))) > _MAX_EXPONENT:
            raise OverflowError
        if base.imag == exponent.imag == 0 and base.real < 0 and exponent.real != round(exponent.real):
            order = 1 / float(exponent.real)
            if abs(order - round(order)) < _WHOLE and round(order) % 2:
                return -((-base.real) ** exponent.real)
        return base**exponent

    def _place(self, name: str) -> Any:
        low, high = _RANGES[self.point]
        share = zlib.crc32(f"{name} {self.point}".encode("utf-8", "replace")) % 1_000_003
        place = self.arithmetic.mpf(low) + self.arithmetic.mpf(share) * (high - low) / 1_000_003
        return self.arithmetic.floor(place) if self.point == len(_RANGES) - 1 else place


def _arithmetic(*, exact: bool) -> tuple[Any, dict[str, Callable[..., Any]]]:
    """This thread's arithmetic, because threads must not share one, and its functions by the kind of node."""
    known: dict[bool, tuple[Any, dict[str, Callable[..., Any]]]] = _own.__dict__.setdefault("known", {})
    if exact not in known:
        from mpmath.ctx_fp import FPContext
        from mpmath.ctx_mp import MPContext

        mp = MPContext() if exact else FPContext()
        mp.dps = _DIGITS
        below = 0 if exact else _WHOLE
        functions = {name: getattr(mp, name) for name in _NAMES.split()} | {
            "lg": lambda value: mp.log(value) / mp.log(10),
            "abs": abs,
            "floor": lambda value: mp.floor(value.real + below),
            "ceil": lambda value: mp.ceil(value.real - below),
            "neg": lambda value: 0 - value,  # not -x: the sign of a zero would choose a branch
            "deg": lambda value: value,
            "add": lambda left, right: left + right,
            "mul": lambda left, right: left * right,
            "div": lambda left, right: left / right,
        }
        functions |= {"fact": functions["factorial"], "binom": functions["binomial"]}
        known[exact] = (mp, functions)
    return known[exact]
