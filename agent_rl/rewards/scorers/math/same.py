"""Compares two parsed mathematical answers: see `agent_rl.rewards.scorers.math.forms`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agent_rl.rewards.scorers.math.expression import variables
from agent_rl.rewards.scorers.math.forms import FLIPPED, Form
from agent_rl.rewards.scorers.math.latex import unit_factor
from agent_rl.rewards.scorers.math.value import ExpressionValue, proportional

__all__ = ["Undecided", "same"]

_NAME = re.compile(r"[A-Za-z]\w{0,5}(?:[_^]\{?-?\w+\}?)?'?(?:\([A-Za-z0-9,]{1,12}\))?|[A-Z]{2,4}")


class Undecided(Exception):
    """One of the two answers could not be parsed."""


def same(answer: Form, truth: Form) -> bool:
    """Whether an answer is equivalent to the ground truth.

    Raises:
        Undecided: one of them could not be parsed, and their texts differ.
    """
    if answer.text and answer.text == truth.text:
        return True
    if "raw" in (answer.kind, truth.kind):
        raise Undecided
    if answer.kind == truth.kind:
        return _SAME[answer.kind](answer, truth)
    return _across(answer, truth)


def _across(answer: Form, truth: Form) -> bool:
    """Compare forms of two kinds."""
    kinds = {answer.kind, truth.kind}
    if kinds in ({"list", "set"}, {"list", "union"}):
        return _any_order(answer.parts, truth.parts)
    return _reduced(answer, truth, same) or _reduced(truth, answer, lambda one, other: same(other, one))


def _reduced(one: Form, other: Form, equal: Callable[[Form, Form], bool]) -> bool:
    """Whether a form of a richer kind is equivalent to a simpler one."""
    match one.kind, other.kind:
        case "relation", "value" | "base":
            return one.brackets == "=" and _is_name(*one.parts) and equal(one.parts[1], other)
        case "base", "value":
            return bool(one.parts[0] == other.text)
        case "words", "value":
            return one.text.replace(" ", "") == other.text.strip("()").lower()
        case "set", "value":
            return len(one.parts) == 1 and equal(one.parts[0], other)
        case "list", "value":  # "1/2 or 0.5"
            return all(equal(part, other) for part in one.parts)
        case "list" | "matrix", "tuple":
            entries = one.parts if one.kind == "list" else _vector(one)
            same_size = other.brackets == "()" and len(entries) == len(other.parts)
            return same_size and all(equal(*pair) for pair in zip(entries, other.parts, strict=True))
    return False


def _vector(matrix: Form) -> Sequence[Form]:
    """The entries of a matrix of one row or one column; none of another."""
    if all(len(row) == 1 for row in matrix.parts):
        return [row[0] for row in matrix.parts]
    return matrix.parts[0] if len(matrix.parts) == 1 else ()


def _same_value(answer: Form, truth: Form) -> bool:
    one, other = answer.value, truth.value
    assert one is not None
    assert other is not None
    factor = _unit_ratio(answer.unit, truth.unit)
    if factor is None:
        return False
    if factor != 1.0:
        left, right = one.number, other.number
        return left is not None and right is not None and abs(left * factor - right) <= 1e-9 * max(abs(right), 1e-9)
    if one.equals(other):
        return True
    if answer.percent != truth.percent and one.exact is not None and other.exact is not None:
        return one.exact in (other.exact * 100, other.exact / 100)
    return _rounded(answer, truth)


def _unit_ratio(answer: str | None, truth: str | None) -> float | None:
    """The factor from the answer's unit to the truth's unit; None if they measure different things."""
    if answer is None or truth is None or answer == truth:
        return 1.0
    (dimension, factor), (other_dimension, other_factor) = unit_factor(answer), unit_factor(truth)
    return factor / other_factor if dimension == other_dimension else None


def _rounded(answer: Form, truth: Form) -> bool:
    """Whether one side is a rounded form of the other.

    A truth with two or more decimals equals every exact value that rounds to it; an answer needs six decimals.
    """
    shown, exact = (truth, answer) if truth.decimals is not None and answer.decimals is None else (answer, truth)
    enough = 2 if shown is truth else 6
    if shown.decimals is None or shown.decimals < enough or shown.value is None or exact.value is None:
        return False
    if shown is truth and exact.value.exact is not None and exact.value.exact.denominator == 1:
        return False
    one, other = shown.value.number, exact.value.number
    if one is None or other is None or abs(one) < 10.0 ** (1 - shown.decimals):
        return False
    return abs(one - other) <= 0.5000001 * 10.0**-shown.decimals


def _same_relation(answer: Form, truth: Form) -> bool:
    if len(answer.parts) != 2 or len(truth.parts) != 2:
        pairs = zip(answer.parts, truth.parts, strict=False)
        return answer.brackets == truth.brackets and all(_same_value(*pair) for pair in pairs)
    ratio = proportional(_difference(answer), _difference(truth))
    if answer.brackets in "=≠":
        return answer.brackets == truth.brackets and ratio != 0
    sign = answer.brackets if ratio > 0 else FLIPPED[answer.brackets]
    return ratio != 0 and sign == truth.brackets


def _difference(relation: Form) -> ExpressionValue:
    left, right = relation.parts
    return ExpressionValue(("add", left.value.node, ("neg", right.value.node)))


def _same_order(answer: Sequence[Form], truth: Sequence[Form]) -> bool:
    return len(answer) == len(truth) and all(same(*pair) for pair in zip(answer, truth, strict=True))


def _any_order(answer: Sequence[Form], truth: Sequence[Form]) -> bool:
    left = list(truth)
    for part in answer:
        found = next((index for index, other in enumerate(left) if same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _is_name(side: Form, value: Form) -> bool:
    r"""Whether one side of an equation is only a name for the other: `x`, `f(x)`, `P(A)`, `AB`, `\cos A`, `m + n`."""
    node = side.value.node if side.value else ()
    if node and (node[0] == "var" or (node[0] == "fn" and node[2][0] == "var")):
        return True
    if node and len(variables(node)) > 1 and value.value is not None and not variables(value.value.node):
        return True
    return _NAME.fullmatch(side.text) is not None


_SAME: dict[str, Callable[[Form, Form], bool]] = {
    "value": _same_value,
    "relation": _same_relation,
    "tuple": lambda answer, truth: answer.brackets == truth.brackets and _same_order(answer.parts, truth.parts),
    "matrix": lambda answer, truth: (
        len(answer.parts) == len(truth.parts) and all(map(_same_order, answer.parts, truth.parts))
    ),
    "base": lambda answer, truth: bool(answer.parts == truth.parts),
    "words": lambda answer, truth: False,  # equal texts were accepted before
    **dict.fromkeys(("set", "list", "union"), lambda answer, truth: _any_order(answer.parts, truth.parts)),
}
"""How two forms of one kind are compared."""
