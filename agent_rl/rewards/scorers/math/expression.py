r"""Parses one mathematical expression in LaTeX or plain text, without `eval` and in bounded time.

`parse` converts the text that `latex.clean` returns to a tree of nested tuples; `value.ExpressionValue` evaluates it. A
node is `(kind, *operands)`: num, var, const, neg, add, mul, div, pow, fact, deg, binom, and fn (with a function's name
and its argument). Angles in degrees are converted to radians, and logarithms with a base become quotients.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from agent_rl.tools.builtin._calculator.reader import Reader

Node = tuple[Any, ...]

_MAX_NODES = 300
_MAX_DIGITS = 300

_NAMES = """
sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh exp ln log lg sqrt abs floor ceil
"""
FUNCTIONS = frozenset(_NAMES.split())
"""The supported functions."""
_TRIGONOMETRIC = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_LETTERS = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi
varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar
"""
_GREEK = frozenset(_LETTERS.split())

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_REPEATING = re.compile(r"([0-9]{0,20})\.([0-9]{0,20})\\(?:overline|bar|dot)\{?([0-9]{1,20})\}?")
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_WORD = re.compile(r"(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|sqrt|exp|ln|log|lg|abs|floor|ceil|pi|inf(?:inity)?\b")
_SUBSCRIPT = re.compile(r"_(?:([A-Za-z0-9])|\{([A-Za-z0-9,]{1,8})\})")
_MIXED = re.compile(r"\\frac(?:([1-9])([1-9])|\{([0-9]{1,6})\}\{([0-9]{1,6})\})(?![0-9])")
_CALL = re.compile(r"\s*\(\s*(?:(-?[0-9]+(?:\.[0-9]+)?)|([A-Za-z]))\s*\)")
_FUNCTION_NAMES = frozenset("fghpqFGHPQ")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,3})(?![0-9A-Za-z])")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CONSTANTS = {"π": "pi", "∞": "inf"}


class Unreadable(Exception):
    """Raised for text that is not a supported expression."""


def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        Unreadable: the text is not a supported expression, or is too long or nested too deeply.
    """
    return _Parser(text).whole()


def variables(node: Node) -> set[str]:
    """Return the names of the variables in a tree."""
    if node[0] == "var":
        return {node[1]}
    return set().union(*(variables(child) for child in node[1:] if isinstance(child, tuple)))


def _repeated(whole: str, digits: str, period: str) -> Fraction:
    r"""Return a repeating decimal such as `0.1\overline{6}` as a fraction."""
    fixed = Fraction(int((whole + digits) or "0"), 10 ** len(digits))
    return fixed + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(digits))


class _Parser(Reader[Node]):
    gap = " \t\n~"
    operators = {"*": "mul", "/": "div"}  # noqa: RUF012
    marks = {"!": "fact", "°": "deg", "%": "%"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = 0

    def made(self, kind: str, *operands: Any) -> Node:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise Unreadable("too long")
        return (kind, *operands)

    def refusal(self, reason: str = "") -> Unreadable:
        return Unreadable(reason or f"{self.text[self.at : self.at + 10]!r} at {self.at}")

    def joined(self) -> bool:
        next_ = self.peek()
        if not next_ or next_ in ")]}|,=<>+-;" or self.text.startswith(("\\}", "\\rfloor", "\\rceil"), self.at):
            return False
        if next_.isdigit() and self.behind().isdigit():
            raise Unreadable("two numbers side by side")
        return True

    def exponent(self) -> Node:
        return self.argument()

    def argument(self, *, digit: bool = False) -> Node:
        """Parse the operand of `^` or of a command: a group, a symbol or, with `digit`, a number's first digit only."""
        mark = self.peek()
        if mark == "{":
            return self.group("{", "}")
        if digit and mark.isdigit():
            self.at += 1
            return self.made("num", Fraction(int(mark)))
        if mark and mark in "+-":
            return self.signed()
        node = self.atom()
        if not digit and self.take("^"):  # parses a tower of powers such as 2^3^4
            return self.made("pow", node, self.argument())
        return node

    def atom(self) -> Node:
        mark = self.peek()
        if mark in _BRACKETS:
            return self.group(mark, _BRACKETS[mark])
        if mark == "|":
            return self.made("fn", "abs", self.group("|", "|"))
        if mark == "\\":
            return self.command()
        repeating = _REPEATING.match(self.text, self.at)
        if repeating:
            self.at = repeating.end()
            return self.made("num", _repeated(*repeating.groups()))
        number = _NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            return self.made("num", self.number(number[0]))
        if mark in _CONSTANTS:
            self.at += 1
            return self.made("const", _CONSTANTS[mark])
        word = _WORD.match(self.text, self.at)
        if word:
            self.at = word.end()
            return self.named(word[0])
        if mark.isalpha():
            self.at += 1
            return self.symbol(mark)
        raise Unreadable(f"{mark!r} at {self.at}")

    def number(self, digits: str) -> Fraction:
        """Return the value of a number, including a mixed number's fraction or an exponent."""
        if len(digits) > _MAX_DIGITS:
            raise Unreadable("a number with too many digits")
        mixed = _MIXED.match(self.text, self.at)
        if mixed and "." not in digits:
            top, bottom = int(mixed[1] or mixed[3]), int(mixed[2] or mixed[4])
            if 0 < top < bottom:
                self.at = mixed.end()
                return int(digits) + Fraction(top, bottom)
        power = _EXPONENT.match(self.text, self.at)
        if power and ("." in digits or power[1][0] in "+-" or len(power[1]) > 1):
            self.at = power.end()
            return Fraction(f"{digits}e{power[1]}")
        return Fraction(digits)

    def symbol(self, name: str) -> Node:
        subscript = _SUBSCRIPT.match(self.text, self.at)
        if subscript:
            self.at = subscript.end()
            name += "_" + (subscript[1] or subscript[2])
        if name in ("e", "i"):
            return self.made("const", name)
        call = _CALL.match(self.text, self.at)
        if call and (call[1] or name[0] in _FUNCTION_NAMES):  # f(0) and P(A) are function values, not products
            self.at = call.end()
            name += f"({call[1] or call[2]})"
        return self.made("var", name)

    def command(self) -> Node:
        match = _COMMAND.match(self.text, self.at)
        if match is None:
            raise Unreadable(self.text[self.at : self.at + 2])
        self.at = match.end()
        name = match[1]
        if name in ("frac", "binom"):
            top = self.argument(digit=True)
            return self.made("div" if name == "frac" else "binom", top, self.argument(digit=True))
        if name in ("lfloor", "lceil"):
            node = self.sum()
            self.need("\\r" + name[1:])
            return self.made("fn", "floor" if name == "lfloor" else "ceil", node)
        if name in _GREEK:
            return self.symbol(name)
        if name in ("overline", "bar", "vec", "hat"):
            return self.made("var", f"{name} {self.argument()}")
        return self.named(name)

    def named(self, name: str) -> Node:
        if name == "pi" or name.startswith("inf"):
            return self.made("const", name[:3])
        if name not in FUNCTIONS:
            raise Unreadable(f"the {name} command")
        if name == "sqrt":
            if self.take("["):
                order = self.sum()
                self.need("]")
                return self.made("pow", self.argument(), self.made("div", ("num", Fraction(1)), order))
            return self.made("fn", "sqrt", self.argument())
        base = self.argument() if name == "log" and self.take("_") else None
        power = self.argument() if self.take("^") else None
        node = self.applied()
        if name in _TRIGONOMETRIC:
            if power == ("neg", ("num", Fraction(1))):
                return self.made("fn", "a" + name, node)
            if node[0] == "deg":
                node = self.made("mul", node, ("div", ("const", "pi"), ("num", Fraction(180))))
        if base is not None:
            node = self.made("div", ("fn", "ln", node), ("fn", "ln", base))
        elif name == "exp":
            node = self.made("pow", ("const", "e"), node)
        else:
            node = self.made("fn", name.replace("arc", "a"), node)
        return node if power is None else self.made("pow", node, power)

    def applied(self) -> Node:
        """Parse a function's argument: a group, or the following factors up to a sign or the next function."""
        if self.peek() in ("(", "{", "["):
            return self.power() if self.peek() == "{" else self.postfix(self.atom())
        node = self.power()
        while (next_ := self.peek()) and (next_.isalnum() or next_ == "π" or self.text.startswith("\\pi", self.at)):
            if _WORD.match(self.text, self.at) and next_ != "π":
                break
            node = self.made("mul", node, self.power())
        if self.peek() == "/" and _NUMBER.match(self.text, self.at + 1):
            self.at += 1
            node = self.made("div", node, self.power())
        return node
