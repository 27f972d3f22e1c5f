"""The calculator and the scorers of mathematics read by one grammar; expressions are compared by their values."""

import pytest

from agent_rl.errors import ToolError
from agent_rl.rewards.scorers.math.expression import Unreadable, parse
from agent_rl.rewards.scorers.math.value import ExpressionValue, proportional
from agent_rl.tools.builtin._calculator.parser import evaluate


@pytest.mark.parametrize(
    "text", ["1+2*3-4/5", "-2^2", "2^-1", "--3", "2*-3", "2(3+4)", "1/2(3)", "(2)(3)", "50%", "5!/3!", "8^(2/3)"]
)
def test_what_both_languages_have_has_one_value(text: str) -> None:
    assert float(ExpressionValue(parse(text)).number) == float(evaluate(text))


def test_both_refuse_what_is_nested_too_deep() -> None:
    deep = "(" * 400 + "1" + ")" * 400
    for read, error in ((parse, Unreadable), (evaluate, ToolError)):
        with pytest.raises(error, match="nested too deeply"):
            read(deep)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(x+1)^2", "x^2+2x+1", True),
        ("(x+1)^2", "x^2+2x", False),
        ("10^{60}+x", "10^{60}", False),
        ("(-1)^n", "1", False),
        ("|x|", "x", False),
        ("\\sqrt{x^2}", "x", False),
        ("\\sqrt{2}\\sqrt{3}", "\\sqrt{6}", True),
        ("\\sin(30°)", "1/2", True),
        ("\\log_2 8", "3", True),
        ("\\exp(2)", "e^2", True),
        ("\\arcsin(1)", "\\sin^{-1}(1)", True),
        ("e^{-50}", "0", False),
        ("\\lfloor 2.5 \\rfloor", "2", True),
        ("\\binom{5}{2}", "10", True),
        ("(-8)^{1/3}", "-2", True),
        ("\\binom{5}{9}+\\sqrt{2}", "\\sqrt{2}", True),
        ("\\lfloor i \\rfloor", "0", False),
    ],
)
def test_expressions_are_equal_by_value(one: str, other: str, same: bool) -> None:
    assert ExpressionValue(parse(one)).equals(ExpressionValue(parse(other))) == same


def test_a_factor_between_two_expressions() -> None:
    one, other = ExpressionValue(parse("2x-4y")), ExpressionValue(parse("2y-x"))
    assert proportional(one, other) < 0
    assert proportional(one, one) > 0
    assert proportional(one, ExpressionValue(parse("x+y"))) == 0
    assert proportional(ExpressionValue(parse("\\sqrt{2}x")), ExpressionValue(parse("x"))) > 0
