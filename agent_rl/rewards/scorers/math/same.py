"""Compares two mathematical answers that `agent_rl.rewards.scorers.math.forms` has parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_rl.rewards.scorers.math.expression import Node, variables
from agent_rl.rewards.scorers.math.forms import FLIPPED, Form
from agent_rl.rewards.scorers.math.latex import unit_factor
from agent_rl.rewards.scorers.math.value import ExpressionValue, proportional

_LETTER = r"[A-Za-z](?:[_^]\{?-?\w+\}?)?'?"
_SYMBOL = re.compile(rf"{_LETTER}(?:\([A-Za-z0-9,]{{1,12}}\))?|[A-Z]{{2,4}}")
_DECIMAL_COMMA = re.compile(r"(-?[0-9]+),([0-9]{1,2}|[0-9]{4,}|(?<=0,)[0-9]{3})")
_ENOUGH = 6
"""A number with at least this many decimals and this many significant digits equals all values that round to it."""
_ENOUGH_OF_A_TRUTH = 2
_LONG = 10
"""A number with at least this many decimals is treated as exact, not as rounded."""
_DUST_DIGITS = 15
_DUST, _BINARY = 1e-13, 1e-15


class Undecided(Exception):
    """Raised when one of two answers could not be parsed."""


def same(answer: Form, truth: Form, *, strict: bool = False) -> bool:
    """Whether an answer is equivalent to the ground truth.

    Args:
        answer: the answer, parsed by `forms.read`.
        truth: the ground truth, parsed by `forms.read`.
        strict: whether a truth with two decimals equals only its own value, rather than every value that rounds to it.

    Raises:
        Undecided: one of the two answers could not be parsed, and their text differs.
    """
    return _Comparison(_ENOUGH if strict else _ENOUGH_OF_A_TRUTH).same(answer, truth)


class _Comparison:
    def __init__(self, enough: int) -> None:
        self.enough = enough

    def same(self, answer: Form, truth: Form) -> bool:
        if answer.text and answer.text == truth.text and answer.approximate <= truth.approximate:
            return True
        if "raw" in (answer.kind, truth.kind):
            raise Undecided
        if answer.kind != truth.kind:
            return self._across(answer, truth)
        match answer.kind:
            case "value":
                return self._same_value(answer, truth)
            case "relation":
                return self._same_relation(answer, truth)
            case "tuple":
                return answer.brackets == truth.brackets and self._same_order(answer.parts, truth.parts)
            case "words":
                return False  # answers with equal text were accepted above
        return self._any_order(answer.parts, truth.parts)

    def _across(self, answer: Form, truth: Form) -> bool:
        """Compare two forms of different kinds."""
        first, second = sorted((answer, truth), key=lambda form: form.kind)
        match first.kind, second.kind:
            case "list", "set" | "union":
                return self._any_order(answer.parts, truth.parts)
            case "list", "tuple":
                return second.brackets == "()" and self._same_order(answer.parts, truth.parts)
            case "list", "value":
                return self._one_value(answer, truth)
            case "relation", "tuple":
                return self._same_half_line(first, second)
            case "relation", "value" if first is answer:
                return _names(answer, computed=True) and self.same(answer.parts[1], truth)
            case "relation", "value":
                return _names(truth) and self.same(answer, truth.parts[1])
            case "value", "words":
                return second.text.replace(" ", "") == first.text.strip("()").lower()
        return False

    def _one_value(self, answer: Form, truth: Form) -> bool:
        """Whether a list is one value in several spellings, as in `1/2 or 0.5`, or a number with a decimal comma."""
        listed, value = (answer, truth) if answer.kind == "list" else (truth, answer)
        comma = _DECIMAL_COMMA.fullmatch(listed.text)
        if comma:
            return value.text == f"{comma[1]}.{comma[2]}"
        if len({part.text for part in listed.parts}) < len(listed.parts):
            return False
        answers, truths = (answer.parts, [truth]) if listed is answer else ([answer], truth.parts)
        return all(self.same(one, other) for one in answers for other in truths)

    def _same_value(self, answer: Form, truth: Form) -> bool:
        if answer.approximate and not truth.approximate and truth.decimals is None:
            return False
        factor = _unit_ratio(answer.unit, truth.unit)
        if factor is None:
            return False
        if factor == 1.0 and answer.value is not None and truth.value is not None and answer.value.equals(truth.value):
            return True
        one, other = answer.number, truth.number
        if one is None or other is None:
            return any(self.same(part, truth) for part in answer.parts)
        if factor != 1.0:
            return bool(abs(one * factor - other) <= 1e-9 * abs(other))
        if answer.percent != truth.percent:
            percent, bare = (one, other) if answer.percent else (other, one)
            return bool(abs(bare * 100 - percent) <= _BINARY * abs(percent))
        return self._rounded(answer, truth) or any(self.same(part, truth) for part in answer.parts)

    def _rounded(self, answer: Form, truth: Form) -> bool:
        """Whether one number is a rounded form of the other, or differs from it only by floating-point error."""
        if _dust(answer, truth) or _dust(truth, answer):
            return True
        shown, exact = (truth, answer) if truth.decimals is not None and answer.decimals is None else (answer, truth)
        enough = self.enough if shown is truth else _ENOUGH
        if shown.decimals is None or shown.decimals < enough:
            return False
        if exact.decimals is not None and exact.decimals < _LONG:
            return False  # the number to compare with is rounded too
        if exact.number == round(exact.number) or abs(shown.number) < 10.0 ** (enough - 1 - shown.decimals):
            return False
        return bool(abs(shown.number - exact.number) <= 0.5000001 * 10.0**-shown.decimals)

    def _same_relation(self, answer: Form, truth: Form) -> bool:
        if len(answer.parts) != 2 or len(truth.parts) != 2:
            return answer.brackets == truth.brackets and all(
                self._same_value(*pair) for pair in zip(answer.parts, truth.parts, strict=True)
            )
        ratio = proportional(_difference(answer), _difference(truth))
        if answer.brackets in "=≠":
            return answer.brackets == truth.brackets and ratio != 0
        sign = answer.brackets if ratio > 0 else FLIPPED[answer.brackets]
        return ratio != 0 and sign == truth.brackets

    def _same_half_line(self, inequality: Form, interval: Form) -> bool:
        """Whether an inequality such as `-x > -1` describes an interval with one infinite end."""
        names = set().union(*(variables(part.value.node) for part in inequality.parts if part.value))
        if len(names) != 1 or inequality.brackets not in "<>≤≥" or len(interval.parts) != 2:
            return False
        low, high = interval.parts
        bound, sign = (low, ">") if high.text == "∞" else (high, "<")
        if bound.value is None or (low.text != "-∞" and high.text != "∞"):
            return False
        if interval.brackets["<>".index(sign) - 1] in "[]":
            sign = {"<": "≤", ">": "≥"}[sign]
        name = Form("value", value=ExpressionValue(("var", names.pop())))
        return self._same_relation(inequality, Form("relation", parts=(name, bound), brackets=sign))

    def _same_order(self, answer: Sequence[Form], truth: Sequence[Form]) -> bool:
        return len(answer) == len(truth) and all(self.same(*pair) for pair in zip(answer, truth, strict=True))

    def _any_order(self, answer: Sequence[Form], truth: Sequence[Form]) -> bool:
        left = list(truth)
        for part in answer:
            position = next((index for index, other in enumerate(left) if self.same(part, other)), None)
            if position is None:
                return False
            del left[position]
        return not left


def _unit_ratio(answer: str | None, truth: str | None) -> float | None:
    """Return the factor that converts the answer's unit to the truth's unit, or None if their dimensions differ."""
    if answer is None or truth is None or answer == truth:
        return 1.0
    (dimension, factor), (other_dimension, other_factor) = unit_factor(answer), unit_factor(truth)
    return factor / other_factor if dimension == other_dimension else None


def _dust(shown: Form, exact: Form) -> bool:
    """Whether a decimal has as many digits as a printed float, and a floating-point error is the only difference."""
    long = shown.decimals is not None and len(shown.text.strip("-0.")) >= _DUST_DIGITS
    return long and bool(abs(shown.number - exact.number) <= _DUST * abs(exact.number))


def _difference(relation: Form) -> ExpressionValue:
    left, right = relation.parts
    return ExpressionValue(("add", left.value.node, ("neg", right.value.node)))


def _names(equation: Form, *, computed: bool = False) -> bool:
    """Whether an equation gives its right side a name, as in `x = 5`, `y = 2x`, `AB = 3` or `f(x) = x + 1`.

    The right side of an equation in several unknowns, such as `4x - 5y = -50`, is not an answer on its own.

    Args:
        equation: the form of a relation.
        computed: whether the left side may also be computed from several variables, as in `m + n = 113`.
    """
    if equation.brackets != "=":
        return False
    name, value = equation.parts
    node = name.value.node
    if computed and not variables(value.value.node) and _is_plain(node):
        return True
    if value.value.node[0] == "var" and not computed:
        return False
    return bool(_SYMBOL.fullmatch(name.text)) or node[0] == "var" or (node[0] == "fn" and node[2][0] == "var")


def _is_plain(node: Node) -> bool:
    """Whether an expression contains only variables and the four basic operations: `m + n`, but not `4x - 5y`."""
    return node[0] == "var" or (node[0] in ("add", "neg", "mul", "div") and all(map(_is_plain, node[1:])))
