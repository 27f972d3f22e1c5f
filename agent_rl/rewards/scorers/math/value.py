"""`ExpressionValue`: evaluates an expression, so that two expressions can be compared.

It uses exact rational arithmetic if there are only rational numbers. Rational functions, and numbers that would be too
long, are compared modulo a large prime at two points, which is an identity but for a chance of about 10^-35. Everything
else is compared at five points in floating point, and whatever agrees there, at eight points to 70 digits. Each
evaluation is a table of operations by the kind of node.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import operator
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import ParamSpec, TypeVar

from agent_rl.rewards.scorers.math.digits import agree, steady
from agent_rl.rewards.scorers.math.expression import FUNCTIONS, TRIGONOMETRIC, Node, variables

__all__ = ["ExpressionValue", "proportional"]

P = ParamSpec("P")
T = TypeVar("T")

_MAX_BITS = 2000
_PRIME = 2**127 - 1
_POINTS = 5
_NEGATIVE = (3, 4)
"""The points at which all variables are negative; there only real values are compared, because answers assume x > 0."""
_CLOSE = 1e-9
_DUST = 1e-13
"""What is left of a sum that is 0; smaller values are told apart by their digits."""
_NO_VALUE = (ArithmeticError, ValueError, RecursionError, KeyError)
"""Raised if an operation is undefined for its operands or unknown (KeyError), or its result is too large."""


class _NotExact(ValueError):
    """Not a rational number, or one that is too long."""


class ExpressionValue:
    """The value of an expression, for comparing."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def exact(self) -> Fraction | None:
        """The value as a rational number of at most 2,000 bits; None if it is not one."""
        return _attempt(_exact, self.node)

    @cached_property
    def residues(self) -> tuple[int, ...] | None:
        """The values at two points modulo a prime; None if it is not a rational function of its variables."""
        found = [_attempt(_residue, self.node, point) for point in range(2)]
        return None if None in found else tuple(each for each in found if each is not None)

    @cached_property
    def points(self) -> tuple[complex | None, ...]:
        """The values at the points; None for a point where it is undefined."""
        values = [_attempt(_complex, self.node, point) for point in range(_POINTS)]
        return tuple(None if value is None or not cmath.isfinite(value) else value for value in values)

    @property
    def number(self) -> float | None:
        """The value as a real number; None if it is not real or has variables."""
        if self.exact is not None:
            return float(self.exact) if abs(self.exact) < 10**300 else None
        first = self.points[0]
        if variables(self.node) or first is None or abs(first.imag) > _CLOSE * max(1.0, abs(first)):
            return None
        return first.real

    def equals(self, other: ExpressionValue) -> bool:
        """Whether both have the same value wherever it is defined."""
        if self.node == other.node:
            return True
        if self.exact is not None and other.exact is not None:
            return self.exact == other.exact
        if self.residues is not None and other.residues is not None:
            return self.residues == other.residues
        return _agree(self.points, other.points) and agree(self.node, other.node)


def proportional(one: ExpressionValue, other: ExpressionValue) -> float:
    """The real constant factor between `one` and `other`; 0 if there is none."""
    pairs = [
        (first, second)
        for point, (first, second) in enumerate(zip(one.points, other.points, strict=True))
        if first is not None and second is not None and not (point in _NEGATIVE and first.imag)
    ]
    if len(pairs) < 3 or not all(first and second for first, second in pairs):
        return 0.0
    ratios = [first / second for first, second in pairs]
    close = all(abs(ratio - ratios[0]) <= _CLOSE * abs(ratios[0]) for ratio in ratios)
    if not close or abs(ratios[0].imag) >= _CLOSE:
        return 0.0
    if one.residues and other.residues:
        (first, second), (third, fourth) = one.residues, other.residues
        return ratios[0].real if first * fourth % _PRIME == second * third % _PRIME else 0.0
    return ratios[0].real if steady(one.node, other.node) else 0.0


def _agree(one: tuple[complex | None, ...], other: tuple[complex | None, ...]) -> bool:
    compared = 0
    for point, (first, second) in enumerate(zip(one, other, strict=True)):
        if first is None or second is None:
            continue
        real = abs(first.imag) < 1e-12 and abs(second.imag) < 1e-12
        if point in _NEGATIVE and not real:
            continue
        if first != second and abs(first - second) > max(_CLOSE * max(abs(first), abs(second)), _DUST):
            return False
        compared += point not in _NEGATIVE
    return compared >= 2


def _attempt(evaluate: Callable[P, T], *arguments: P.args, **none: P.kwargs) -> T | None:
    try:
        return evaluate(*arguments, **none)
    except _NO_VALUE:
        return None


def _exact(node: Node) -> Fraction:
    kind, *operands = node
    if kind == "num":
        return _short(node[1])
    if kind == "fn":
        kind, *operands = operands
    return _short(_EXACT[kind](*map(_exact, operands)))


def _short(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise _NotExact
    return value


def _whole(value: Fraction, limit: int) -> int:
    if value.denominator != 1 or not 0 <= value <= limit:
        raise _NotExact
    return value.numerator


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if exponent.denominator > 64:
            raise _NotExact
        base = _root(base, exponent.denominator)
    power = exponent.numerator
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if base not in (0, 1, -1) and abs(power) * bits > 2 * _MAX_BITS:
        raise _NotExact
    if base in (1, -1):
        power %= 2
    elif base == 0 and power > 1:
        power = 1
    return Fraction(base**power)


def _root(value: Fraction, order: int) -> Fraction:
    if value < 0 or order < 1:
        raise _NotExact
    return Fraction(_whole_root(value.numerator, order), _whole_root(value.denominator, order))


def _whole_root(value: int, order: int) -> int:
    if order != 2 and value.bit_length() >= 1000:
        raise _NotExact
    root = math.isqrt(value) if order == 2 else round(value ** (1 / order))
    if root**order != value:
        raise _NotExact
    return root


def _binomial(top: Fraction, bottom: Fraction) -> int:
    return math.comb(_whole(top, 1000), _whole(bottom, 1000))


_EXACT: dict[str, Callable[..., Fraction]] = {
    "neg": operator.neg,
    "deg": operator.pos,
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": _power,
    "sqrt": lambda value: _root(value, 2),
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "fact": lambda value: Fraction(math.factorial(_whole(value, 300))),
    "binom": lambda top, bottom: Fraction(_binomial(top, bottom)),
}


def _residue(node: Node, point: int) -> int:
    kind, *operands = node
    if kind == "num":
        return _modulo(node[1])
    if kind == "var":
        return _place_modulo(node[1], point)
    if kind in _MODULAR:
        return _MODULAR[kind](*(_residue(operand, point) for operand in operands)) % _PRIME
    if kind == "pow":
        exponent = _exact(node[2])
        if exponent.denominator != 1:
            raise _NotExact
        return pow(_residue(node[1], point), exponent.numerator, _PRIME)
    if kind == "fact":
        result = 1
        for factor in range(2, _whole(_exact(node[1]), 5000) + 1):
            result = result * factor % _PRIME
        return result
    if kind == "binom":
        return _binomial(_exact(node[1]), _exact(node[2])) % _PRIME
    return _modulo(_exact(node))


def _modulo(value: Fraction) -> int:
    return value.numerator * pow(value.denominator, -1, _PRIME) % _PRIME


def _place_modulo(name: str, point: int) -> int:
    """The value of the variable `name` at a point, modulo the prime."""
    digest = hashlib.blake2b(f"{name} {point}".encode("utf-8", "replace"), digest_size=15)
    return int.from_bytes(digest.digest(), "big")


_MODULAR: dict[str, Callable[..., int]] = {
    "neg": operator.neg,
    "add": operator.add,
    "mul": operator.mul,
    "div": lambda top, bottom: top * pow(bottom, -1, _PRIME),
}


def _complex(node: Node, point: int) -> complex:
    kind, *operands = node
    if kind == "num":
        return complex(node[1])
    if kind == "var":
        return complex(_place(node[1], point))
    if kind == "const":
        return _CONSTANTS[node[1]]
    if kind == "fn":
        name, operand = operands
        argument = _complex(operand, point)
        degrees = name in TRIGONOMETRIC and operand[0] == "deg"
        return FUNCTIONS[name](argument * (math.pi / 180) if degrees else argument)
    return _COMPLEX[kind](*(_complex(operand, point) for operand in operands))


def _real_power(base: complex, exponent: complex) -> complex:
    """A power; the odd root of a negative number is the real one, as in school."""
    if base.imag == 0 and base.real < 0 and exponent.imag == 0 and exponent.real != round(exponent.real):
        order = 1 / exponent.real
        if abs(order - round(order)) < 1e-12 and round(order) % 2:
            return complex(-((-base.real) ** exponent.real))
    return complex(base**exponent)


def _factorial(value: complex) -> float:
    return math.gamma(value.real + 1)


_CONSTANTS = {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}  # of infinity there is none
_COMPLEX: dict[str, Callable[..., complex]] = {
    "neg": lambda value: 0 - value,  # not -x: the sign of a zero would choose a branch
    "deg": operator.pos,
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": _real_power,
    "log": lambda base, value: cmath.log(value) / cmath.log(base),
    "fact": lambda value: complex(_factorial(value)),
    "binom": lambda top, bottom: complex(_factorial(top) / _factorial(bottom) / _factorial(top - bottom)),
}


def _place(name: str, point: int) -> float:
    """The value of the variable `name` at a point: from 0.6 to 2.6, or the negative of that."""
    digest = zlib.crc32(f"{name} {point}".encode("utf-8", "replace"))
    size = 0.6 + 2 * (digest % 1_000_003) / 1_000_003
    return -size if point in _NEGATIVE else size
