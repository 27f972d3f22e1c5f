"""`Reader`: reads an expression by the grammar that the calculator and the scorers of mathematics share.

    sum     = product (("+" | "-") product)*
    product = signed (operator signed | power)*       without an operator a product: 2(3+4), 2 pi
    signed  = ("+" | "-")* power
    power   = postfix (("**" | "^") exponent)? mark*
    postfix = atom mark*                              marks: "!", "%"

A subclass says what an atom, an operator, an exponent and a mark are, and what is made of them: a value or a tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

__all__ = ["SIGNS", "Reader"]

T = TypeVar("T")
SIGNS = str.maketrans(  # one character for one, so that positions stay true
    "\u00d7\u00b7\u22c5\u2219\u2022\u2217"  # times, middle dot, dot, bullet operator, bullet, asterisk
    "\u00f7\u2215\u2044"  # division sign, division slash, fraction slash
    "\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d",  # minus, hyphens, dashes
    "******///--------",
)
"""Signs of Unicode in the spelling of a keyboard."""


class Reader(ABC, Generic[T]):
    """Reads one text once; `at` is the position."""

    gap: ClassVar[str] = " "
    """The characters that are skipped between two signs."""
    operators: ClassVar[dict[str, str]]
    """The kinds of operators of products, by their signs."""
    marks: ClassVar[dict[str, str]]
    """The kinds of marks behind a value; that of the percent sign is %."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @abstractmethod
    def made(self, kind: str, *operands: Any) -> T:
        """What stands for an operation: num, neg, add, mul, div, pow, or one that the subclass reads."""

    @abstractmethod
    def refusal(self, reason: str = "") -> Exception:
        """The error at this position."""

    @abstractmethod
    def atom(self) -> T:
        """A number, a name, a group."""

    @abstractmethod
    def joined(self) -> bool:
        """Whether a factor follows without an operator."""

    def operator(self) -> str | None:
        """Read an operator of products, and return its kind."""
        return self.operators.get(self.take(*self.operators))

    def mark(self) -> str | None:
        """Read a mark, and return its kind."""
        return self.marks.get(self.take(*self.marks))

    def exponent(self) -> T:
        """What follows the sign of a power."""
        return self.signed()

    def whole(self) -> T:
        """The expression that is the whole text."""
        try:
            made = self.sum()
        except RecursionError:
            raise self.refusal("the expression is nested too deeply") from None
        if self.peek():
            raise self.refusal()
        return made

    def peek(self) -> str:
        """The next character after the gap; "" at the end."""
        rest = self.text[self.at :].lstrip(self.gap)
        self.at = len(self.text) - len(rest)
        return rest[:1]

    def behind(self) -> str:
        """The last character before the gap; "" at the beginning."""
        return self.text[: self.at].rstrip(self.gap)[-1:]

    def take(self, *signs: str) -> str:
        """Read the first of the signs that stands here; "" if none does."""
        self.peek()
        for sign in signs:
            if self.text.startswith(sign, self.at):
                self.at += len(sign)
                return sign
        return ""

    def need(self, sign: str) -> None:
        """Read this sign."""
        if not self.take(sign):
            raise self.refusal()

    def group(self, opening: str, closing: str) -> T:
        """A sum in brackets."""
        self.need(opening)
        made = self.sum()
        self.need(closing)
        return made

    def sum(self) -> T:
        """Products with + and - between them."""
        left = self.product()
        while sign := self.take("+", "-"):
            right = self.product()
            left = self.made("add", left, right if sign == "+" else self.made("neg", right))
        return left

    def product(self) -> T:
        """Factors with an operator or nothing between them."""
        left = self.signed()
        while True:
            if kind := self.operator():
                left = self.made(kind, left, self.signed())
            elif self.joined():
                left = self.made("mul", left, self.power())
            else:
                return left

    def signed(self) -> T:
        """A power and the signs before it."""
        negative = False
        while sign := self.take("+", "-"):
            negative ^= sign == "-"
        made = self.power()
        return self.made("neg", made) if negative else made

    def power(self) -> T:
        """An atom with its marks and its exponent."""
        base = self.postfix(self.atom())
        return self.postfix(self.made("pow", base, self.exponent())) if self.take("**", "^") else base

    def postfix(self, made: T) -> T:
        """A value and the marks behind it."""
        while mark := self.mark():
            made = self.made("div", made, self.made("num", Fraction(100))) if mark == "%" else self.made(mark, made)
        return made
