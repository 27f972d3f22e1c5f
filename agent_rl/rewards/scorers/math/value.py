"""`ExpressionValue`: evaluates an expression, so that two expressions can be compared.

It uses exact rational arithmetic if there are only rational numbers. Rational functions are computed exactly where
their variables are integers of 40 bits, at two points: an identity but for a chance of about 10^-20. Everything else is
compared by `digits`.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import cached_property

from agent_rl.errors import ToolError
from agent_rl.rewards.scorers.math.digits import agree, number, sign_of_ratio
from agent_rl.rewards.scorers.math.expression import Node, variables
from agent_rl.tools.builtin._calculator.values import FUNCTIONS, arithmetic, factorial, power

__all__ = ["ExpressionValue", "proportional"]

_MAX_BITS = 4000
_MAX_BINOMIAL = 1000
_CLOSE = 1e-9
_SIGNS = {"add": "+", "mul": "*", "div": "/"}


class _NotExact(ValueError):
    """Not a rational number, or one that is too long."""


class ExpressionValue:
    """The value of an expression, for comparing."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def exact(self) -> Fraction | None:
        """The value as a rational number of at most 4,000 bits; None if it is not one."""
        return _attempt(self.node, None)

    @cached_property
    def rational(self) -> tuple[Fraction, Fraction] | None:
        """The values at two points; None if it is not a rational function of its variables."""
        if self.exact is not None:
            return self.exact, self.exact
        first = _attempt(self.node, 0)
        second = None if first is None else _attempt(self.node, 1)
        return None if first is None or second is None else (first, second)

    @cached_property
    def number(self) -> float | None:
        """The value as a real number; None if it is not real or has variables."""
        if self.exact is not None:
            return float(self.exact) if abs(self.exact) < 10**300 else None
        value = None if variables(self.node) else number(self.node)
        return None if value is None or abs(value.imag) > _CLOSE * max(1.0, abs(value)) else value.real

    def equals(self, other: ExpressionValue) -> bool:
        """Whether both have the same value wherever it is defined."""
        if self.node == other.node:
            return True
        if self.rational is not None and other.rational is not None:
            return self.rational == other.rational
        return agree(self.node, other.node)


def proportional(one: ExpressionValue, other: ExpressionValue) -> int:
    """The sign of the real constant factor between `one` and `other`; 0 if they are not proportional."""
    if one.rational and other.rational and all(one.rational) and all(other.rational):
        (first, second), (third, fourth) = one.rational, other.rational
        return (1 if first / third > 0 else -1) if first * fourth == second * third else 0
    return sign_of_ratio(one.node, other.node)


def _attempt(node: Node, point: int | None) -> Fraction | None:
    try:
        return _exact(node, point)
    except (ToolError, ArithmeticError, ValueError, RecursionError, KeyError):  # no value, no rational one, too long
        return None


def _exact(node: Node, point: int | None) -> Fraction:
    """The exact value at a point; without one there are no variables, as in an exponent or in a function."""
    kind, *operands = node
    match kind:
        case "num":
            value = node[1]
        case "var" if point is not None:
            digest = hashlib.blake2b(f"{node[1]} {point}".encode("utf-8", "replace"), digest_size=5).digest()
            value = Fraction(int.from_bytes(digest, "big"))
        case "add" | "mul" | "div":
            value = arithmetic(_SIGNS[kind], _exact(operands[0], point), _exact(operands[1], point))
        case "neg" | "deg":
            value = _exact(operands[0], point) * (-1 if kind == "neg" else 1)
        case "pow":
            value = power(_exact(operands[0], point), _exact(operands[1], None))
        case "fact":
            value = factorial(_exact(operands[0], None))
        case "binom":
            value = _binomial(*(_exact(operand, None) for operand in operands))
        case "fn":
            value = FUNCTIONS[operands[0]][0](_exact(operands[1], None))
        case _:
            raise _NotExact
    if not isinstance(value, Fraction) or max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise _NotExact
    return value


def _binomial(top: Fraction, bottom: Fraction) -> Fraction:
    if top.denominator != 1 or bottom.denominator != 1 or not 0 <= top <= _MAX_BINOMIAL:
        raise _NotExact
    return Fraction(math.comb(top.numerator, bottom.numerator))
