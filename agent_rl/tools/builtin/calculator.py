"""`calculator`: exact arithmetic for word problems, written the way people and models write it.

Nothing is evaluated as Python: `_calculator.parser` reads the expression and `_calculator.values` computes it with
fractions, so 0.1+0.2 is 0.3. Time and size are limited; an expression beyond a limit results in an error.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar

from agent_rl.tools.base import Tool, ToolConfig
from agent_rl.tools.builtin._calculator.parser import evaluate
from agent_rl.tools.builtin._calculator.values import too_large

SIGNIFICANT_DIGITS = 12
"""Number of significant digits in a result that is neither an integer nor a short decimal."""
MAX_RESULT_DIGITS = 1000
MAX_DECIMALS = 50
"""Maximum number of decimal places; longer decimals are rounded to `SIGNIFICANT_DIGITS`."""


class Calculator(Tool):
    """A stateless tool that evaluates one expression per call."""

    name = "calculator"
    Config = ToolConfig
    idempotent = reusable = True
    description = (
        "Evaluate an arithmetic expression exactly. Supports + - * / // % ** ^ ! parentheses, percent (20% is 0.2), "
        "pi, e and the functions sqrt, abs, round, floor, ceil, min, max, sum, gcd, lcm, pow, factorial, exp, "
        "log (natural, or log(x, base)), ln, log10, log2, sin, cos, tan (radians)."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "For example (80000 + 50000) * 1.5"}},
        "required": ["expression"],
    }

    async def call(self, arguments: dict[str, Any]) -> str:
        """Run `calculate` on the event loop, because a thread would cost more than the computation."""
        return calculate(arguments["expression"])


def calculate(expression: str) -> str:
    """Return the value of `expression` as text.

    Integers and decimals of at most `MAX_DECIMALS` places are exact; everything else is rounded to 12 significant
    digits (a fraction above 1 has at least 6 decimals).

    Raises:
        ToolError: the expression has no value; the policy reads the text.
    """
    value = evaluate(expression)
    return _show_exact(value) if isinstance(value, Fraction) else _show_float(value)


def _show_exact(value: Fraction) -> str:
    """Format with Decimal, because a fraction may exceed the range of a float."""
    whole = abs(value.numerator) // value.denominator
    if whole.bit_length() > MAX_RESULT_DIGITS * 3.33:  # checked first: str() is slow and has its own limit
        raise too_large()
    digits = len(str(whole)) if whole else 0
    is_short = 10**MAX_DECIMALS % value.denominator == 0
    context = Context(prec=digits + MAX_DECIMALS if is_short else max(SIGNIFICANT_DIGITS, digits + 6))
    quotient = context.normalize(context.divide(Decimal(value.numerator), Decimal(value.denominator)))
    return f"{quotient:f}" if is_short or whole else f"{quotient:g}"


def _show_float(value: float) -> str:
    text = f"{value:.{SIGNIFICANT_DIGITS}g}"
    return "0" if text == "-0" else text
