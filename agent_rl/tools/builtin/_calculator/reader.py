"""`Reader`: reads an expression with the grammar that the calculator and the math scorers share.

    sum     = product (("+" | "-") product)*
    product = signed (operator signed | power)*       a missing operator multiplies: 2(3+4), 2 pi
    signed  = ("+" | "-")* power
    power   = postfix (("**" | "^") exponent)? mark*
    postfix = atom mark*                              marks: "!", "%"

A subclass defines atoms, operators, exponents and marks, and the result of an operation, which is a value or a tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")
SIGNS = str.maketrans(  # each sign is replaced by one character, so that positions stay valid
    "\u00d7\u00b7\u22c5\u2219\u2022\u2217"  # multiplication: times, middle dot, dot, bullet operator, bullet, asterisk
    "\u00f7\u2215\u2044"  # division: division sign, division slash, fraction slash
    "\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d",  # minus, hyphens, dashes
    "******///--------",
)
"""Translates Unicode signs to their ASCII forms."""


class Reader(ABC, Generic[T]):
    """Reads an expression once, from left to right; `at` is the current position in the text."""

    gap: ClassVar[str] = " "
    """Characters to skip between tokens."""
    operators: ClassVar[dict[str, str]]
    """The operation for each sign between two factors."""
    marks: ClassVar[dict[str, str]]
    """The operation for each mark after a value, such as `!`; the percent sign has the operation "%"."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @abstractmethod
    def made(self, kind: str, *operands: Any) -> T:
        """Return the result of an operation: num, neg, add, mul, div, pow, or an operation of the subclass."""

    @abstractmethod
    def refusal(self, reason: str = "") -> Exception:
        """Return the error for the current position."""

    @abstractmethod
    def atom(self) -> T:
        """Read a number, a name or a group."""

    @abstractmethod
    def joined(self) -> bool:
        """Whether a factor follows without an operator."""

    def operator(self) -> str | None:
        """Read an operator between two factors, and return its operation."""
        return self.operators.get(self.take(*self.operators))

    def mark(self) -> str | None:
        """Read a mark such as `!` or `%`, and return its operation."""
        return self.marks.get(self.take(*self.marks))

    def exponent(self) -> T:
        """Read the exponent that follows `**` or `^`."""
        return self.signed()

    def whole(self) -> T:
        """Read the whole text as one expression."""
        try:
            value = self.sum()
        except RecursionError:
            raise self.refusal("the expression is nested too deeply") from None
        if self.peek():
            raise self.refusal()
        return value

    def peek(self) -> str:
        """Skip the gap and return the next character, or "" at the end."""
        rest = self.text[self.at :].lstrip(self.gap)
        self.at = len(self.text) - len(rest)
        return rest[:1]

    def behind(self) -> str:
        """Return the last character before the gap, or "" at the start."""
        return self.text[: self.at].rstrip(self.gap)[-1:]

    def take(self, *signs: str) -> str:
        """Read and return the first of `signs` that matches at the current position, or return ""."""
        self.peek()
        for sign in signs:
            if self.text.startswith(sign, self.at):
                self.at += len(sign)
                return sign
        return ""

    def need(self, sign: str) -> None:
        """Read the given sign, or raise the error for the current position."""
        if not self.take(sign):
            raise self.refusal()

    def group(self, opening: str, closing: str) -> T:
        """Read a sum in brackets."""
        self.need(opening)
        value = self.sum()
        self.need(closing)
        return value

    def sum(self) -> T:
        """Read products with + and - between them."""
        left = self.product()
        while sign := self.take("+", "-"):
            right = self.product()
            left = self.made("add", left, right if sign == "+" else self.made("neg", right))
        return left

    def product(self) -> T:
        """Read factors with or without an operator between them."""
        left = self.signed()
        while True:
            if kind := self.operator():
                left = self.made(kind, left, self.signed())
            elif self.joined():
                left = self.made("mul", left, self.power())
            else:
                return left

    def signed(self) -> T:
        """Read a power and the signs before it."""
        negative = False
        while sign := self.take("+", "-"):
            negative ^= sign == "-"
        value = self.power()
        return self.made("neg", value) if negative else value

    def power(self) -> T:
        """Read an atom with its marks and its exponent."""
        base = self.postfix(self.atom())
        return self.postfix(self.made("pow", base, self.exponent())) if self.take("**", "^") else base

    def postfix(self, value: T) -> T:
        """Read the marks after a value and apply them."""
        while mark := self.mark():
            value = self.made("div", value, self.made("num", Fraction(100))) if mark == "%" else self.made(mark, value)
        return value
