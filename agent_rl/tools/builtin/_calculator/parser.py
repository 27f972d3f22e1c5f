"""Reading the calculator's expressions: a tokenizer and a recursive-descent parser that evaluates as it reads.

    sum     = product (("+" | "-") product)*
    product = unary (("*" | "/" | "//" | "%" | nothing) unary)*       nothing: 2(3+4), 2 pi
    unary   = ("+" | "-")* power
    power   = postfix (("**" | "^") unary)?                           so -2^2 = -4 and 2^-1 = 0.5
    postfix = atom ("!" | "%")*                                       "%" before an operand is modulo instead
    atom    = number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"

Currency signs are skipped. A comma separates thousands, except directly inside a function that takes several arguments.
`x` and `of` between operands mean times.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from agent_rl.errors import ToolError, did_you_mean
from agent_rl.tools.builtin._calculator.values import (
    CONSTANTS,
    FUNCTIONS,
    Value,
    arithmetic,
    checked,
    factorial,
    power,
    too_large,
)

__all__ = ["evaluate"]

MAX_LENGTH = 1000
MAX_DEPTH = 50
MAX_EXPONENT = 1000
"""Of a literal such as 1e3."""

_SAME = str.maketrans(  # one character for one, so that positions stay true
    "\u00d7\u00b7\u22c5\u2219\u2022\u2217"  # times, middle dot, dot, bullet operator, bullet, asterisk
    "\u00f7\u2215\u2044"  # division sign, division slash, fraction slash
    "\u2212\u2013\u2014",  # minus, en dash, em dash
    "******///---",
)
_CURRENCY = "$€£¥₹₩₽"
_SKIP = re.compile(rf"[\s{_CURRENCY}]*")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_TIMES = re.compile(r"(?:[xX](?![A-Za-z_])|of(?![A-Za-z_0-9]))")
_OPERATOR = re.compile(r"\*\*|//|[-+*/%^!(),]")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]")


class _Token(NamedTuple):
    kind: str  # number, name, end, or the operator itself
    text: str
    start: int


def evaluate(expression: str) -> Value:
    """The value of `expression`.

    Raises:
        ToolError: when it cannot be read, has no value, or is beyond a bound.
    """
    if len(expression) > MAX_LENGTH:
        raise ToolError(f"the expression has {len(expression)} characters; at most {MAX_LENGTH} are read")
    text = expression.translate(_SAME).rstrip()
    text = text.removesuffix("=")
    tokens = _tokenize(text)
    if len(tokens) == 1:
        raise ToolError("the expression is empty")
    return _Parser(tokens).whole()


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    in_arguments: list[bool] = []  # for each open parenthesis: does a comma separate arguments directly inside it?
    position = _skip(text, 0)
    while position < len(text):
        token = _next_token(text, position, tokens, bool(in_arguments and in_arguments[-1]))
        if token.kind == "(":
            in_arguments.append(bool(tokens) and tokens[-1].kind == "name" and _takes_several(tokens[-1].text))
        elif token.kind == ")" and in_arguments:
            in_arguments.pop()
        tokens.append(token)
        position = _skip(text, position + len(token.text))
    return [*tokens, _Token("end", "", len(text))]


def _skip(text: str, position: int) -> int:
    """The position after white space and currency signs."""
    match = _SKIP.match(text, position)
    return match.end() if match else position


def _next_token(text: str, position: int, before: list[_Token], in_arguments: bool) -> _Token:
    after_operand = bool(before) and before[-1].kind in ("number", "name", ")", "%", "!")
    if _HEXADECIMAL.match(text, position):
        raise ToolError(f"hexadecimal numbers are not read (position {position + 1}); for a product write 0 * 1")
    if after_operand and (match := _TIMES.match(text, position)):
        return _Token("*", match.group(), position)
    grouped = None if in_arguments else _GROUPED.match(text, position)
    if match := grouped or _NUMBER.match(text, position):
        if in_arguments and before[-1].kind == "," and re.fullmatch("0[0-9]{2}", match.group()):
            raise ToolError(
                f"the comma before position {position + 1} separates arguments: write 1000 instead of 1,000"
            )
        return _Token("number", match.group(), position)
    if match := _NAME.match(text, position):
        return _Token("name", match.group(), position)
    if match := _OPERATOR.match(text, position):
        return _Token(match.group(), match.group(), position)
    raise ToolError(f"unexpected character {text[position]!r} at position {position + 1}")


def _takes_several(name: str) -> bool:
    _, _, most = FUNCTIONS.get(name.lower(), (None, 1, 1))
    return most != 1


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def whole(self) -> Value:
        value = self._sum()
        if self._kind != "end":
            raise self._unexpected()
        return value

    @property
    def _kind(self) -> str:
        return self._tokens[self._index].kind

    def _take(self) -> _Token:
        token = self._tokens[self._index]
        self._index += 1
        return token

    def _unexpected(self) -> ToolError:
        token = self._tokens[self._index]
        if token.kind == "end":
            return ToolError("the expression ends too early")
        text = token.text if len(token.text) <= 20 else f"{token.text[:20]}..."
        before = self._tokens[self._index - 1].kind if self._index else ""
        hint = " (an operator is missing before it)" if token.kind == "number" and before == "number" else ""
        return ToolError(f"unexpected {text!r} at position {token.start + 1}{hint}")

    def _sum(self) -> Value:
        value = self._product()
        while self._kind in ("+", "-"):
            operator = self._take().kind
            value = arithmetic(operator, value, self._product())
        return value

    def _product(self) -> Value:
        value = self._unary()
        while True:
            if self._kind in ("*", "/", "//", "%"):
                operator = self._take().kind
                value = arithmetic(operator, value, self._unary())
            elif self._kind in ("(", "name") or (self._kind == "number" and self._tokens[self._index - 1].kind == ")"):
                value = arithmetic("*", value, self._power())
            else:
                return value

    def _unary(self) -> Value:
        self._enter()
        negative = False
        while self._kind in ("+", "-"):
            negative ^= self._take().kind == "-"
        value = self._power()
        self._depth -= 1
        return -value if negative else value

    def _power(self) -> Value:
        base = self._postfix()
        if self._kind in ("**", "^"):
            self._take()
            return power(base, self._unary())
        return base

    def _postfix(self) -> Value:
        value = self._atom()
        while True:
            if self._kind == "!":
                self._take()
                value = factorial(value)
            elif self._kind == "%" and self._tokens[self._index + 1].kind not in ("number", "name", "("):
                self._take()
                value = arithmetic("/", value, Fraction(100))
            else:
                return value

    def _atom(self) -> Value:
        if self._kind == "number":
            return _read_number(self._take())
        if self._kind == "name":
            return self._named()
        if self._kind == "(":
            return self._arguments(1)[0]
        raise self._unexpected()

    def _named(self) -> Value:
        token = self._take()
        name = token.text.lower()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            raise ToolError(f"unknown name {token.text[:40]!r}. {did_you_mean(name[:40], [*FUNCTIONS, *CONSTANTS])}")
        function, fewest, most = FUNCTIONS[name]
        if self._kind != "(":
            raise ToolError(f"{name} needs parentheses: {name}(...)")
        values = self._arguments(most)
        if len(values) < fewest:
            raise ToolError(f"{name} takes {fewest} arguments, got {len(values)}")
        return function(*values)

    def _arguments(self, most: int | None) -> list[Value]:
        self._take()
        self._enter()
        values = [self._sum()]
        while self._kind == "," and (most is None or len(values) < most):
            self._take()
            values.append(self._sum())
        if self._kind != ")":
            raise self._unexpected()
        self._take()
        self._depth -= 1
        return values

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ToolError(f"the expression is nested more than {MAX_DEPTH // 2} deep")


def _read_number(token: _Token) -> Fraction:
    mantissa, _, exponent = token.text.replace(",", "").lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT):
        raise too_large()
    whole, _, decimals = mantissa.partition(".")
    number = Fraction(int(whole + decimals), 10 ** len(decimals))
    return checked(number * Fraction(10) ** int(exponent or 0))  # type: ignore[return-value]
