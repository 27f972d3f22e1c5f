"""`Value`: what an expression is worth, so that two of them can be told apart.

By exact rational arithmetic where there are only rational numbers (modulo a large prime where these would be too long),
else by their values at fixed points, which two different expressions of an answer's size do not share by accident.
"""

from __future__ import annotations

import cmath
import math
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

from agent_rl.rewards.scorers.math.expression import TRIGONOMETRIC, Node, variables

__all__ = ["Value", "proportional"]

_MAX_BITS = 2000
_PRIME = 2**127 - 1
_POINTS = 5
_NEGATIVE = (3, 4)
"""The points at which all variables are negative: there, only real values are compared, for answers mean x > 0."""
_CLOSE = 1e-9

_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z),
    "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "asin": cmath.asin,
    "acos": cmath.acos,
    "atan": cmath.atan,
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "exp": cmath.exp,
    "ln": cmath.log,
    "log": cmath.log,
    "lg": lambda z: cmath.log(z) / math.log(10),
    "sqrt": cmath.sqrt,
    "abs": lambda z: complex(abs(z)),
    "floor": lambda z: complex(math.floor(z.real + 1e-12)),
    "ceil": lambda z: complex(math.ceil(z.real - 1e-12)),
}


class _NotExact(Exception):
    """No rational number, or one too long."""


class Value:
    """What an expression is worth, for comparing."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @cached_property
    def exact(self) -> Fraction | None:
        """The rational number that it is, if it is one of at most 2,000 bits."""
        try:
            return _exact(self.node)
        except (_NotExact, ArithmeticError, RecursionError):
            return None

    @cached_property
    def residue(self) -> int | None:
        """A rational number modulo a prime, however long it is."""
        try:
            return _residue(self.node)
        except (_NotExact, ArithmeticError, ValueError, RecursionError):
            return None

    @cached_property
    def points(self) -> tuple[complex | None, ...]:
        """The values at the points; None where there is none."""
        return tuple(_at(self.node, point) for point in range(_POINTS))

    @property
    def number(self) -> float | None:
        """The real number that it is; None for another, and where there are variables."""
        if self.exact is not None:
            return float(self.exact) if abs(self.exact) < 10**300 else None
        first = self.points[0]
        if variables(self.node) or first is None or abs(first.imag) > _CLOSE * max(1.0, abs(first)):
            return None
        return first.real

    def equals(self, other: Value) -> bool:
        """Whether both are worth the same wherever they can be compared."""
        if self.node == other.node:
            return True
        if self.exact is not None and other.exact is not None:
            return self.exact == other.exact
        if self.residue is not None and other.residue is not None:
            return self.residue == other.residue
        return _agree(self.points, other.points)


def proportional(one: Value, other: Value) -> float:
    """The constant that `one` is of `other`, if it is a real one and not 0; else 0."""
    pairs = [
        (first, second)
        for point, (first, second) in enumerate(zip(one.points, other.points, strict=True))
        if first is not None and second is not None and not (point in _NEGATIVE and first.imag)
    ]
    if len(pairs) < 3 or any(abs(second) < _CLOSE or abs(first) < _CLOSE for first, second in pairs):
        return 0.0
    ratios = [first / second for first, second in pairs]
    steady = all(abs(ratio - ratios[0]) <= _CLOSE * abs(ratios[0]) for ratio in ratios)
    return ratios[0].real if steady and abs(ratios[0].imag) < _CLOSE else 0.0


def _agree(one: tuple[complex | None, ...], other: tuple[complex | None, ...]) -> bool:
    compared = 0
    for point, (first, second) in enumerate(zip(one, other, strict=True)):
        if first is None or second is None:
            continue
        real = abs(first.imag) < 1e-12 and abs(second.imag) < 1e-12
        if point in _NEGATIVE and not real:
            continue
        if first != second and abs(first - second) > max(_CLOSE * max(abs(first), abs(second)), 1e-13):
            return False
        compared += point not in _NEGATIVE
    return compared >= 2


def _exact(node: Node) -> Fraction:
    kind = node[0]
    if kind == "num":
        return _short(node[1])
    if kind == "neg":
        return -_exact(node[1])
    if kind == "deg":
        return _exact(node[1])
    if kind in ("add", "mul", "div"):
        left, right = _exact(node[1]), _exact(node[2])
        return _short(left + right if kind == "add" else left * right if kind == "mul" else left / right)
    if kind == "pow":
        return _power(_exact(node[1]), _exact(node[2]))
    if kind == "fn" and node[1] == "sqrt":
        return _root(_exact(node[2]), 2)
    if kind == "fn" and node[1] in ("abs", "floor", "ceil"):
        value = _exact(node[2])
        return (
            abs(value) if node[1] == "abs" else Fraction(math.floor(value) if node[1] == "floor" else math.ceil(value))
        )
    if kind == "fact":
        return _short(Fraction(math.factorial(_whole(_exact(node[1]), 300))))
    if kind == "binom":
        return _short(Fraction(math.comb(_whole(_exact(node[1]), 1000), _whole(_exact(node[2]), 1000))))
    raise _NotExact


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
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if base not in (0, 1, -1) and abs(exponent.numerator) * bits > 2 * _MAX_BITS:
        raise _NotExact
    if abs(exponent.numerator).bit_length() > _MAX_BITS:
        raise _NotExact
    power = exponent.numerator
    if base in (1, -1):
        power %= 2
    elif base == 0 and power > 1:
        power = 1
    return _short(Fraction(base**power))


def _root(value: Fraction, order: int) -> Fraction:
    if value < 0 or order < 1:
        raise _NotExact
    parts = []
    for part in (value.numerator, value.denominator):
        if order == 2:
            root = math.isqrt(part)
        elif part.bit_length() < 1000:
            root = round(part ** (1 / order))
        else:
            raise _NotExact
        if root**order != part:
            raise _NotExact
        parts.append(root)
    return Fraction(*parts)


def _residue(node: Node) -> int:
    kind = node[0]
    if kind == "num":
        return int(node[1].numerator * pow(node[1].denominator, -1, _PRIME)) % _PRIME
    if kind == "neg":
        return -_residue(node[1]) % _PRIME
    if kind in ("add", "mul", "div"):
        left, right = _residue(node[1]), _residue(node[2])
        if kind == "div":
            right = pow(right, -1, _PRIME)
        return (left + right if kind == "add" else left * right) % _PRIME
    if kind == "pow":
        exponent = _exact(node[2])
        if exponent.denominator != 1:
            raise _NotExact
        return pow(_residue(node[1]), exponent.numerator, _PRIME)
    if kind == "fact":
        result = 1
        for factor in range(2, _whole(_exact(node[1]), 5000) + 1):
            result = result * factor % _PRIME
        return result
    if kind == "binom":
        return math.comb(_whole(_exact(node[1]), 1000), _whole(_exact(node[2]), 1000)) % _PRIME
    value = _exact(node)
    return int(value.numerator * pow(value.denominator, -1, _PRIME)) % _PRIME


def _at(node: Node, point: int) -> complex | None:
    try:
        value = _value(node, point)
    except (ArithmeticError, ValueError, RecursionError):
        return None
    return value if cmath.isfinite(value) else None


def _value(node: Node, point: int) -> complex:
    kind = node[0]
    if kind == "num":
        return complex(node[1])
    if kind == "var":
        return complex(_place(node[1], point))
    if kind == "const":
        if node[1] == "inf":
            raise ValueError("infinite")
        return {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}[node[1]]
    if kind == "neg":
        return 0 - _value(node[1], point)  # not -x: the sign of a zero would choose a branch
    if kind == "add":
        return _value(node[1], point) + _value(node[2], point)
    if kind == "mul":
        return _value(node[1], point) * _value(node[2], point)
    if kind == "div":
        return _value(node[1], point) / _value(node[2], point)
    if kind == "pow":
        return _real_power(_value(node[1], point), _value(node[2], point))
    if kind == "deg":
        return _value(node[1], point)
    if kind == "log":
        return cmath.log(_value(node[2], point)) / cmath.log(_value(node[1], point))
    if kind == "fn":
        argument = _value(node[2], point)
        if node[1] in TRIGONOMETRIC and node[2][0] == "deg":
            argument *= math.pi / 180
        return _FUNCTIONS[node[1]](argument)
    if kind == "fact":
        argument = _value(node[1], point)
        return complex(math.gamma(argument.real + 1))
    if kind == "binom":
        n, k = _value(node[1], point).real, _value(node[2], point).real
        return complex(math.gamma(n + 1) / math.gamma(k + 1) / math.gamma(n - k + 1))
    raise ValueError(kind)


def _real_power(base: complex, exponent: complex) -> complex:
    """A power; the odd root of a negative number is the real one, as in school."""
    if base.imag == 0 and base.real < 0 and exponent.imag == 0 and exponent.real != round(exponent.real):
        order = 1 / exponent.real
        if abs(order - round(order)) < 1e-12 and round(order) % 2:
            return complex(-((-base.real) ** exponent.real))
    return complex(base**exponent)


def _place(name: str, point: int) -> float:
    """Where the variable `name` stands at a point: between 0.6 and 2.6, or the negative of that."""
    digest = zlib.crc32(f"{name} {point}".encode("utf-8", "replace"))
    size = 0.6 + 2 * (digest % 1_000_003) / 1_000_003
    return -size if point in _NEGATIVE else size
