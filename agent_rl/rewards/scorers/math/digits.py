"""Compares expressions by 70 digits, after floating point has found them equal.

Floating point cannot tell 2^100 + x from 2^100, nor e^-50 from 0. Here a difference is compared with the values
themselves or, where a sum cancels, with its summands. Whatever is not finite in floating point must not be given to
this module: its digits could be too many.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from itertools import combinations
from typing import Any

from agent_rl.rewards.scorers.math.expression import TRIGONOMETRIC, Node, variables

__all__ = ["agree", "steady"]

_DIGITS = 70
_CLOSE = 1e-50
_CANCELLED = 1e-55
_MAX_EXPONENT = 10**4
_RANGES = ((0.01, 0.2), (1.1, 1.9), (5.0, 9.0), (2.0, 12.0))
"""Of the variables at the points; they are positive, as answers assume, and whole numbers at the last one."""
_NO_VALUE = (ArithmeticError, ValueError, RecursionError, KeyError, TypeError, NotImplementedError)

_own = threading.local()


def agree(one: Node, other: Node) -> bool:
    """Whether two expressions have the same value wherever both have one: at two of four points at least."""
    points = range(len(_RANGES)) if variables(one) | variables(other) else range(1)
    pairs = [pair for point in points if (pair := _pair(one, other, point))]
    return len(pairs) >= min(2, len(points)) and all(
        abs(first - second) <= max(_CLOSE * max(abs(first), abs(second)), _CANCELLED * scale)
        for first, second, scale in pairs
    )


def steady(one: Node, other: Node) -> bool:
    """Whether the quotient of two expressions is the same at all points where both have a value, two at least."""
    pairs = [pair for point in range(len(_RANGES)) if (pair := _pair(one, other, point))]
    return len(pairs) >= 2 and all(
        abs(first * another - second * other_first) <= _CLOSE * max(abs(first * another), abs(second * other_first))
        for (first, second, _), (other_first, another, _) in combinations(pairs, 2)
    )


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
        self.arithmetic, self.functions = _arithmetic()
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
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.j}[node[1]]
        if kind == "fn":
            return self._function(*operands)
        values = [self.value(operand) for operand in operands]
        if kind == "add":
            self.scale = max(self.scale, *map(abs, values))
        return self._power(*values) if kind == "pow" else self.functions[kind](*values)

    def _function(self, name: str, operand: Node) -> Any:
        mp = self.arithmetic
        argument = self.value(operand)
        if name in TRIGONOMETRIC and operand[0] == "deg":
            argument = argument * mp.pi / 180
        if name not in ("sqrt", "abs", "exp"):
            self.scale = max(self.scale, 1)  # sin(pi) is as inexact as pi
        return self._power(mp.e, argument) if name == "exp" else self.functions[name](argument)

    def _power(self, base: Any, exponent: Any) -> Any:
        mp = self.arithmetic
        if base and abs(exponent * mp.log(abs(base))) > _MAX_EXPONENT:
            raise OverflowError
        if mp.im(base) == mp.im(exponent) == 0 and mp.re(base) < 0 and not mp.isint(exponent):
            order = mp.nint(1 / exponent)
            if mp.almosteq(order, 1 / exponent) and order % 2:  # an odd root
                return -((-base) ** exponent)
        return base**exponent

    def _place(self, name: str) -> Any:
        low, high = _RANGES[self.point]
        whole = self.point == len(_RANGES) - 1
        share = zlib.crc32(f"{name} {self.point} exact".encode("utf-8", "replace")) % 1_000_003
        place = self.arithmetic.mpf(low) + self.arithmetic.mpf(share) * (high - low) / 1_000_003
        return self.arithmetic.floor(place) if whole else place


def _arithmetic() -> tuple[Any, dict[str, Callable[..., Any]]]:
    """This thread's arithmetic, because threads must not share one, and its functions by the kind of node."""
    found: tuple[Any, dict[str, Callable[..., Any]]] | None = getattr(_own, "arithmetic", None)
    if found is None:
        from mpmath.ctx_mp import MPContext

        mp = MPContext()
        mp.dps = _DIGITS
        names = ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "ln", "log", "sqrt", "ceil", "floor"]
        functions = {name: getattr(mp, name) for name in names} | {
            **{f"arc{name}": getattr(mp, f"a{name}") for name in ("sin", "cos", "tan")},
            **{f"a{name}": getattr(mp, f"a{name}") for name in ("sin", "cos", "tan")},
            "lg": mp.log10,
            "abs": abs,
            "neg": lambda value: -value,
            "deg": lambda value: value,
            "add": lambda left, right: left + right,
            "mul": lambda left, right: left * right,
            "div": lambda left, right: left / right,
            "log": lambda base, value=None: mp.log(base) if value is None else mp.log(value) / mp.log(base),
            "fact": mp.factorial,
            "binom": mp.binomial,
        }
        found = _own.arithmetic = (mp, functions)
    return found
