r"""Rewrites mathematics, as written by people and models, in SymPy's notation. Only text changes; nothing is evaluated.

Besides Python's notation, this module supports some LaTeX (\frac, \sqrt, \cdot, matrices, names with a backslash), the
usual Unicode signs, |x|, `=` for an equation, and equations separated by `;`, a line break or `and`.
"""

from __future__ import annotations

import re

from agent_rl.errors import ToolError
from agent_rl.tools.builtin._calculator.reader import SIGNS

_SIGNS = SIGNS | str.maketrans({
    "∞": "oo", "π": "pi", "√": "sqrt", "≤": "<=", "≥": ">=", "≠": "!=",
    "θ": "theta", "λ": "lamda", "∑": "Sum",
    "\u00a0": " ", "\u2009": " ", "°": "*pi/180",
})  # fmt: skip
_LATEX = {
    "cdot": "*", "times": "*", "div": "/", "le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "ne": "!=", "neq": "!=",
    "infty": " oo ", "lambda": " lamda ", "left": "", "right": "", "displaystyle": "", "quad": " ", "qquad": " ",
    "dfrac": "\\frac", "tfrac": "\\frac", "lvert": "|", "rvert": "|", "vert": "|",
}  # fmt: skip
_MAX_CHARS = 10_000
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_EXPONENT = re.compile("[⁰¹²³⁴-⁹]+")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[^\W\d]\w*)")
_DEGREES = re.compile(r"(?<![\w.])([\w.]+)\s*°")
_DERIVATIVE = re.compile(r"\bd\)*\s*/\s*\(?d\s*[^\W\d]\b")
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?!,?\d)")  # in brackets, a comma separates arguments
_MATRIX = re.compile(r"\\begin\{[bpv]?matrix\}(.*?)\\end\{[bpv]?matrix\}", re.DOTALL)
_MATRIX_ARITHMETIC = re.compile(r"\]\s*\]\s*[-+*/^]|[-+*\d]\s*\[\s*\[")
_GROUP = r"\s*(?:\{([^{}]*)\}|([^{}\s\\]))"
_OPENING = {"(": ")", "[": "]", "{": "}"}
_KEYWORDS = ("dir", "domain", "dict", "n", "x0", "evaluate", "check", "real", "positive", "integer")


def to_sympy(text: str) -> str:
    """Rewrite `text` for SymPy's parser: each equation becomes `Eq(..., ...)`, and commas separate equations.

    Raises:
        ToolError: the text is empty or too long, its brackets do not match, or it contains d/dx.
    """
    if len(text) > _MAX_CHARS:
        raise ToolError(f"the expression is longer than {_MAX_CHARS} characters")
    text = text.strip().strip("$").strip()
    text = _EXPONENT.sub(lambda match: f"^({match[0].translate(_RAISED)})", text)
    text = _DEGREES.sub(r"(\1*pi/180)", _ROOT.sub(r"sqrt(\1)", text)).translate(_SIGNS)
    text = _matrices(text)
    if "\\" in text or "^{" in text or "_{" in text:
        text = _latex(text)
    if derivative := _DERIVATIVE.search(text):  # otherwise a quotient of the products d and d*x
        raise ToolError(f"could not parse `{derivative[0]}`: use the operation differentiate, or diff(..., x)")
    text = re.sub(r"\|([^|]+)\|", r"Abs(\1)", text)
    text = re.sub(r"\blambda\b", "lamda", text)
    if "Matrix" not in text and _MATRIX_ARITHMETIC.search(text):
        text = re.sub(r"\[\s*\[.*?\]\s*\]", r"Matrix(\g<0>)", text)
    text = ", ".join(part.strip() for part in re.split(r";|\n|\band\b", text.strip().rstrip(".;,")))
    if not text.strip():
        raise ToolError("the expression is empty")
    return _with_equations(text)


def _matrices(text: str) -> str:
    def rows(match: re.Match[str]) -> str:
        lines = [line for line in match[1].split("\\\\") if line.strip()]
        return f"[{', '.join('[' + line.strip().replace('&', ',') + ']' for line in lines)}]"

    return _MATRIX.sub(rows, text)


def _latex(text: str) -> str:
    text = re.sub(r"\\[,;:! ()\[\]]|\$", " ", text)
    text = re.sub(r"\\([A-Za-z]+)", lambda match: _LATEX.get(match[1], match[0]), text)
    text = re.sub(r"_\{(\w+)\}", r"_\1", text)
    text = re.sub(r"\\sqrt\s*(\w)", r" sqrt(\1)", text)
    count = 1
    while count:  # the innermost groups first
        text, exponents = re.subn(r"\^\s*\{([^{}]*)\}", r"^(\1)", text)
        text, fractions = re.subn(rf"\\frac{_GROUP}{_GROUP}", r"((\1\2)/(\3\4))", text)
        text, roots = re.subn(r"\\sqrt\s*\[(\d+)\]\s*\{([^{}]*)\}", r"root(\2, \1)", text)
        text, square_roots = re.subn(r"\\sqrt\s*\{([^{}]*)\}", r" sqrt(\1)", text)
        count = exponents + fractions + roots + square_roots
    text = re.sub(r"\\([A-Za-z]+)", r" \1", text)
    return text.replace("{", "(").replace("}", ")")


def _around(text: str, index: int) -> str:
    begin, end = max(index - 20, 0), index + 20
    return f"`{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}`"


def _with_equations(text: str) -> str:
    """Rewrite `a = b` and `a != b`, at any depth, as `Eq(a, b)` and `Ne(a, b)`; a part ends at a comma or bracket."""
    opened: list[int] = []
    starts = [0]  # start of the current part at each bracket depth
    equals: list[int | None] = [None]
    out = ""
    grouping = {index for match in _THOUSANDS.finditer(text) for index in range(*match.span())}
    for index, sign in enumerate(text):
        if sign == "," and not opened and index in grouping:
            continue
        if sign in _OPENING:
            opened.append(index)
            starts.append(len(out) + 1)
            equals.append(None)
        elif sign in ")]},":
            out = _closed(out, starts[-1], equals[-1])
            equals[-1] = None
            starts[-1] = len(out) + 1
            if sign != ",":
                if not opened or _OPENING[text[opened.pop()]] != sign:
                    raise ToolError(f"could not parse {_around(text, index)}: {sign!r} has no matching opening bracket")
                starts.pop()
                equals.pop()
        elif sign == "=" and text[index - 1 : index] not in tuple("<>="):
            if equals[-1] is not None:
                raise ToolError(f"could not parse {_around(text, index)}: two `=` in one equation; write it as two")
            equals[-1] = len(out)
            sign = "" if text.startswith("==", index) else sign
        out += sign
    if opened:
        raise ToolError(f"could not parse {_around(text, opened[-1])}: {text[opened[-1]]!r} is never closed")
    return _closed(out, starts[-1], equals[-1])


def _closed(out: str, start: int, equals: int | None) -> str:
    if equals is None:
        return out
    left, right = out[start:equals].strip(), out[equals + 1 :].strip()
    if start and left in _KEYWORDS:
        return out
    kind, left = ("Ne", left[:-1].rstrip()) if out[:equals].endswith("!") else ("Eq", left)
    if not left or not right:
        raise ToolError(f"could not parse `{out[start:].strip()}`: one side of the equation is missing")
    return f"{out[:start]}{' ' if start and out[start - 1] == ',' else ''}{kind}({left}, {right})"
