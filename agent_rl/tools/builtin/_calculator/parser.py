"""Reads the calculator's expressions with the grammar of `reader.Reader`, and computes their values while reading.

For example, -2^2 = -4 and 2^-1 = 0.5. `//` divides and rounds down, and `%` before an operand returns the
remainder. Currency signs are skipped. A comma separates thousands, except directly inside a function that takes several
arguments. `x` and `of` between operands mean multiplication.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agent_rl.errors import ToolError, did_you_mean
from agent_rl.tools.builtin._calculator.reader import SIGNS, Reader
from agent_rl.tools.builtin._calculator.values import CONSTANTS, FUNCTIONS, OPERATIONS, Value, checked, too_large

MAX_LENGTH = 1000
MAX_EXPONENT = 1000
"""Largest exponent in a literal such as 1e3."""

_GAP = re.compile(r"[\s$€£¥₹₩₽]")
_UNREAD = re.compile(r"[^0-9A-Za-z_.+*/%^!(), -]")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_TIMES = re.compile(r"[xX](?![A-Za-z_])|of(?![A-Za-z_0-9])")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|{_NAME.pattern}|\*\*|//|[-+*/%^!(),]")
_MODULO = re.compile(rf"% *(?!{_TIMES.pattern})(?:[0-9A-Za-z_(]|\.[0-9])")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]")


def evaluate(expression: str) -> Value:
    """Return the value of `expression`.

    Raises:
        ToolError: the expression cannot be read, has no value, or exceeds a limit.
    """
    if len(expression) > MAX_LENGTH:
        raise ToolError(f"the expression has {len(expression)} characters; at most {MAX_LENGTH} are read")
    calculation = _Calculation(_GAP.sub(" ", expression.translate(SIGNS)).rstrip().removesuffix("="))
    if unread := _UNREAD.search(calculation.text):
        raise ToolError(f"unexpected character {unread[0]!r} at position {unread.start() + 1}")
    if not calculation.peek():
        raise ToolError("the expression is empty")
    try:
        return calculation.whole()
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:  # of a float
        raise too_large() from None


class _Calculation(Reader[Value]):
    operators = {"*": "mul", "//": "floordiv", "/": "div", "%": "mod"}  # noqa: RUF012
    marks = {"!": "fact", "%": "%"}  # noqa: RUF012
    several = False
    """Whether a comma at the current position separates arguments."""

    def made(self, kind: str, *operands: Value) -> Value:
        return checked(OPERATIONS[kind](*operands))

    def refusal(self, reason: str = "") -> ToolError:
        if reason:
            return ToolError(reason)
        if not self.peek():
            return ToolError("the expression ends too early")
        token = _TOKEN.match(self.text, self.at)
        if token is None:
            return ToolError(f"unexpected character {self.text[self.at]!r} at position {self.at + 1}")
        text = token[0] if len(token[0]) <= 20 else f"{token[0][:20]}..."
        hint = ""
        if _NUMBER.match(text) and self.behind() in tuple("0123456789."):
            hint = " (an operator is missing before it)"
        return ToolError(f"unexpected {text!r} at position {self.at + 1}{hint}")

    def operator(self) -> str | None:
        self.peek()
        if times := _TIMES.match(self.text, self.at):
            self.at = times.end()
            return "mul"
        return super().operator()

    def joined(self) -> bool:
        next_ = self.peek()
        if next_ == "(" or _NAME.match(next_):
            return True
        return self.behind() == ")" and _NUMBER.match(self.text, self.at) is not None

    def mark(self) -> str | None:
        if self.peek() == "%" and _MODULO.match(self.text, self.at):
            return None
        return super().mark()

    def atom(self) -> Value:
        if self.peek() == "(":
            return self._arguments(1)[0]
        if _HEXADECIMAL.match(self.text, self.at):
            raise ToolError(f"hexadecimal is not supported (position {self.at + 1}); for a product write 0 * 1")
        number = (None if self.several else _GROUPED.match(self.text, self.at)) or _NUMBER.match(self.text, self.at)
        if number:
            return self._number(number)
        if name := _NAME.match(self.text, self.at):
            self.at = name.end()
            return self._named(name[0])
        raise self.refusal()

    def _number(self, match: re.Match[str]) -> Value:
        if self.several and self.behind() == "," and re.fullmatch("0[0-9]{2}", match[0]):
            raise ToolError(f"the comma before position {self.at + 1} separates arguments: write 1000 instead of 1,000")
        self.at = match.end()
        mantissa, _, exponent = match[0].replace(",", "").lower().partition("e")
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT):
            raise too_large()
        whole, _, decimals = mantissa.partition(".")
        number = Fraction(int(whole + decimals), 10 ** len(decimals))
        return checked(number * Fraction(10) ** int(exponent or 0))

    def _named(self, text: str) -> Value:
        name = text.lower()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            raise ToolError(f"unknown name {text[:40]!r}. {did_you_mean(name[:40], [*FUNCTIONS, *CONSTANTS])}")
        function, fewest, most = FUNCTIONS[name]
        if self.peek() != "(":
            raise ToolError(f"{name} needs parentheses: {name}(...)")
        values = self._arguments(most)
        if len(values) < fewest:
            raise ToolError(f"{name} takes {fewest} arguments, got {len(values)}")
        return checked(function(*values))

    def _arguments(self, most: int | None) -> list[Value]:
        outer, self.several = self.several, most != 1
        self.need("(")
        values = [self.sum()]
        while (most is None or len(values) < most) and self.take(","):
            values.append(self.sum())
        self.need(")")
        self.several = outer
        return values
