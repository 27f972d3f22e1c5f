"""Compares expressions at points by mpmath: in floating point, and to 70 digits whatever floating point finds equal.

Floating point cannot tell 2^100 + x from 2^100, nor e^-50 from 0. A difference is compared with the values themselves
or, where a sum cancels, with its summands. What is not finite in floating point is not computed to 70 digits, for its
digits could be too many.
"""

from __future__ import annotations

import cmath
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from agent_rl.rewards.scorers.math.expression import Node, variables

__all__ = ["agree", "number", "sign_of_ratio"]

_DIGITS = 70
_MAX_EXPONENT = 10**4
_WHOLE = 1e-12
"""What an exponent may be off an odd root's, and a float below the integer that it stands for."""
_RANGES = ((0.6, 2.6), (0.6, 2.6), (0.6, 2.6), (-0.6, -2.6), (-0.6, -2.6), (0.01, 0.2), (1.1, 1.9), (5.0, 9.0), (2, 12))
"""Values of the variables at each point; whole numbers at the last point."""
_NEGATIVE = (3, 4)
"""The points at which all variables are negative; there only real values are compared, because answers assume x > 0."""
_FLOATS = range(5)
_TIERS = ((_FLOATS, 1e-9, 1e-13), (range(5, 9), 1e-50, 1e-55))
"""Points, and how far two values may differ there: as a share of them, and of what was added to get them."""
_NO_VALUE = (ArithmeticError, ValueError, RecursionError, KeyError, TypeError, NotImplementedError)
_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln log sqrt factorial binomial"

_own = threading.local()


def agree(one: Node, other: Node) -> bool:
    """Whether two expressions have the same value wherever both have one: at two points of a kind at least."""
    count = 2 if variables(one) | variables(other) else 1
    for points, close, cancelled in _TIERS:
        compared = 0
        for point, first, second, scale in _pairs(one, other, points if count > 1 else points[:1]):
            if not abs(first - second) <= max(close * max(abs(first), abs(second)), cancelled * scale):
                return False
            compared += point not in _NEGATIVE
        if compared < count:
            return False
    return True


def sign_of_ratio(one: Node, other: Node) -> int:
    """The sign of the real factor between two expressions; 0 if it is not the same wherever both have a value."""
    sign = 0
    for points, close, _ in _TIERS:
        pairs = [(first, second) for _, first, second, _ in _pairs(one, other, points) if first or second]
        if len(pairs) < 2 or not all(first and second for first, second in pairs):
            return 0
        ratios = [first / second for first, second in pairs]
        if any(max(abs(each.imag), abs(each - ratios[0])) > close * abs(each) for each in ratios):
            return 0
        sign = 1 if ratios[0].real > 0 else -1
    return sign


def number(node: Node) -> complex | None:
    """The value of an expression without variables in floating point; None if it has none."""
    return next((first for _, first, _, _ in _pairs(node, node, _FLOATS[:1])), None)


def _pairs(one: Node, other: Node, points: range) -> Iterator[tuple[int, Any, Any, Any]]:
    """The points at which both have a value, these, and the size of what was added to get them."""
    for point in points:
        evaluation = _Evaluation(point)
        try:
            first, second = evaluation.value(one), evaluation.value(other)
        except _NO_VALUE:
            continue
        if point in _FLOATS and not (cmath.isfinite(first) and cmath.isfinite(second)):
            continue
        if point not in _NEGATIVE or max(abs(first.imag), abs(second.imag)) < _WHOLE:
            yield point, first, second, evaluation.scale


class _Evaluation:
    """The values at one point; `scale` is the size of the largest summand so far."""

    def __init__(self, point: int) -> None:
        self.arithmetic, self.functions = _arithmetic(exact=point not in _FLOATS)
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
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.j}[node[1]]  # infinity has no value
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
        label = f"{name} {self.point}" if self.point in _FLOATS else f"{name} {self.point - len(_FLOATS)} exact"
        share = zlib.crc32(label.encode("utf-8", "replace")) % 1_000_003
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
            "floor": lambda value: mp.floor(value + below),
            "ceil": lambda value: mp.ceil(value - below),
            "neg": lambda value: 0 - value,  # not -x: the sign of a zero would choose a branch
            "deg": lambda value: value,
            "add": lambda left, right: left + right,
            "mul": lambda left, right: left * right,
            "div": lambda left, right: left / right,
        }
        functions |= {"fact": functions["factorial"], "binom": functions["binomial"]}
        known[exact] = (mp, functions)
    return known[exact]
