"""`Form`: a parsed mathematical answer, which is a value, tuple, interval, set, list, relation, or words.

`read` never raises an exception: it returns a form of kind `raw` for text that it cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from agent_rl.rewards.scorers.math.expression import FUNCTIONS, Unreadable, parse, variables
from agent_rl.rewards.scorers.math.latex import QUOTE, clean, unit_of
from agent_rl.rewards.scorers.math.value import ExpressionValue

MAX_CHARS = 1_000
_MAX_ELEMENTS = 40
_MAX_DEPTH = 6
_OPENING, _CLOSING = "([{⟨", ")]}⟩"
FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}
"""Maps the sign of a relation to the sign of the same relation with swapped sides."""
_RELATION = re.compile(r"([=<>≤≥≠≈])")
_MATRIX = re.compile(
    r"(?:[^=\\]{1,12}=)?[\s()\[\]]*\\begin\{([pbB]?(?:small)?matrix|array)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}[\s()\[\]]*",
    re.DOTALL,
)
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w\}?)?\s*(?:∈|:(?=\s*[\\([]))\s*(.+)|[A-Z]\s*(\([^()]*,.*\))", re.DOTALL)
_BASE = re.compile(r"(-?[0-9][0-9A-F]*(?:\.[0-9A-F]+)?|[A-F]{2,})_(?:\{?\(?([0-9]{1,2}|[a-z]+)\)?\}?)")
_WORDS = re.compile(rf"{QUOTE}([^{QUOTE}]*){QUOTE}")
_PLAIN_UNIT = re.compile(
    r"(?P<value>.*[0-9.)}}π])\s*(?P<unit>(?:[A-Za-z]{2,}[A-Za-z ./]*|[A-Za-z]/[a-z]+)(?:\^\{?[23]\}?)?)\s*"
)
_DECIMAL = re.compile(r"-?[0-9]*\.([0-9]+)")
_CHOICE = re.compile(r"\(?([A-J])[.:)]?\)?")
_PROSE = re.compile(r"[A-Za-z][A-Za-z' ,.-]*")
_SPACE = re.compile(r"[\s~]+(?![0-9])|(?<![0-9])[\s~]+")  # spaces that are not between two digits
_LOOSE_UNIT = re.compile(
    r"(?P<value>[^A-Za-z]*[0-9)}])\s+(?P<unit>(?:[a-z]{3,}|(?:km|mi)/hr?|(?:m|ft)/s|[ap]m)(?:\s[a-z]+)*(?:\^\{?[23]\}?)?)\.?"
)
_OPERATION = re.compile(r"[\s).:]*[-+*/^<>=]")
_PERCENT = re.compile(rf"[\s{QUOTE}]*(?:percent|percentage|pct)\.?[\s{QUOTE}]*$", re.IGNORECASE)
_CONNECTED = re.compile(r"\s(?:or|and|&)\s|(?<=[0-9})])(?:or|and)(?=[\s0-9A-Za-z\\({-])")
_POWER = re.compile(r"\^[23]|\^\{[23]\}")


@dataclass(frozen=True)
class Form:
    """A parsed answer.

    `kind` is value, tuple, set, list, union, relation, words or raw. The meaning of the other fields depends on the
    kind. For a value, `parts` contains the rounded form if the answer states both an exact and a rounded form.
    """

    kind: str
    text: str = ""
    parts: tuple[Any, ...] = ()
    value: ExpressionValue | None = None
    unit: str | None = None
    percent: bool = False
    decimals: int | None = None
    brackets: str = ""
    approximate: bool = False
    """Whether the value follows a sign such as ≈, without an exact value before the sign."""

    @property
    def number(self) -> Any:
        """The value as an mpmath real number, or None if it is not real."""
        return None if self.value is None else self.value.number


@lru_cache(maxsize=8192)
def read(text: str) -> Form:
    """Parse text; if it has more than `MAX_CHARS` characters, return a form of kind `raw`."""
    if len(text) > MAX_CHARS:
        return Form("raw", text)
    cleaned = clean(text)
    try:
        return _read(cleaned, 0)
    except (Unreadable, RecursionError):
        return Form("raw", _squeezed(cleaned))


def _read(text: str, depth: int) -> Form:
    text = text.strip().strip("\"'").strip()
    whole = _without_braces(text)
    if depth > _MAX_DEPTH:
        raise Unreadable("nested too deeply")
    named = _NAMED.fullmatch(whole)
    if named and (named[1] or _closes(named[2])):
        return _read(named[1] or named[2], depth + 1)
    if "\\begin" in whole or "&" in whole:
        return _matrix(whole, depth)
    if whole == "ℝ":
        return Form("tuple", whole, _INFINITE, brackets="()")
    words = _as_words(whole)
    if words is not None:
        return words
    pieces = _listed(whole)
    if len(pieces) != 1 or pieces[0] != whole:
        return _sequence("list", whole, pieces, depth) if len(pieces) > 1 else _read("".join(pieces), depth + 1)
    if "±" in whole or "∓" in whole:
        both = [whole.replace("±", "+").replace("∓", "-"), whole.replace("±", "-").replace("∓", "+")]
        return _sequence("list", _squeezed(whole), both, depth)
    if "∪" in whole:
        return _sequence("union", _squeezed(whole), _split(whole, "∪"), depth)
    bracketed = _bracketed(whole, depth)
    if bracketed is not None:
        return bracketed
    return _relation(whole, depth) if _RELATION.search(whole) else _single(whole)


def _listed(text: str) -> list[str]:
    """Split a list at commas, semicolons, "and" and "or"; if commas occur between semicolons, split only at semicolons.

    `p = 5, q = 2; p = 7, q = 2` has two elements.
    """
    groups = _split(text, ";")
    if len(groups) == 1 or not any("," in group for group in groups):
        groups = [part for group in groups for piece in _split(group, ",") for part in _CONNECTED.split(f" {piece} ")]
    return [group.strip() for group in groups if group.strip()]


def _sequence(kind: str, text: str, pieces: Sequence[str], depth: int, brackets: str = "") -> Form:
    if len(pieces) > _MAX_ELEMENTS:
        raise Unreadable("too many elements")
    parts = tuple(_read(piece, depth + 1) for piece in pieces)
    if kind == "set" and len(parts) == 1:
        return parts[0]
    return Form(kind, _squeezed(text), parts, brackets=brackets)


def _bracketed(text: str, depth: int) -> Form | None:
    """Parse a tuple, interval or set; return None if the brackets belong to an expression."""
    if text.startswith("\\{") and text.endswith("\\}"):
        inner = text[2:-2]
        if not inner.strip():
            return Form("set", "∅")
        if "|" in inner or ":" in inner:
            raise Unreadable("a set with a condition")
        return _sequence("set", text, _split(inner, ","), depth)
    if text[:1] in "([⟨" and text[-1:] in ")]⟩" and _closes(text):
        pieces = _split(text[1:-1], ",")
        if len(pieces) > 1:
            brackets = (text[0] + text[-1]).replace("⟨", "(").replace("⟩", ")")
            return _sequence("tuple", text, pieces, depth, brackets)
    return None


def _matrix(text: str, depth: int) -> Form:
    """Parse a matrix as the tuple of its rows, or a column vector as the tuple of its entries."""
    match = _MATRIX.fullmatch(text)
    if match is None:
        raise Unreadable("not a matrix")
    rows = [row.split("&") for row in match[2].split("\\\\") if row.strip()]
    if all(len(row) == 1 for row in rows):
        return _sequence("tuple", text, [row[0] for row in rows], depth, "()")
    parts = tuple(_sequence("tuple", "&".join(row), row, depth, "()") for row in rows)
    return Form("tuple", _squeezed(text), parts, brackets="matrix")


def _relation(text: str, depth: int) -> Form:
    tokens = _RELATION.split(text)
    pieces, signs = tokens[::2], tokens[1::2]
    if "≈" in signs:
        at = signs.index("≈") + 1
        return _approximated("=".join(pieces[:at]), pieces[-1], depth)
    sides = tuple(_read(piece, depth + 1) for piece in pieces)
    if set(signs) == {"="} and sides[-1].kind != "value":
        return sides[-1]
    values = [side.value for side in sides if side.value is not None]
    if len(sides) > 4 or len(values) < len(sides):
        raise Unreadable("a relation with a side that is not an expression, or with too many sides")
    if set(signs) == {"="}:
        return _equation(sides, values, _squeezed(text))
    return _as_interval(sides, signs) or Form("relation", _squeezed(text), sides, brackets="".join(signs))


def _equation(sides: Sequence[Form], values: Sequence[ExpressionValue], text: str) -> Form:
    """Return the form of a chain of equations: `x = 1/2 = 0.5` becomes `x = 0.5`; `x = 2y = 3z` is unchanged."""
    first, last = sides[0], sides[-1]
    if not variables(values[-1].node) or all(value.equals(values[-1]) for value in values[1:]):
        constant = not variables(values[0].node) and all(value.equals(values[-1]) for value in values)
        return last if constant else Form("relation", text, (first, last), brackets="=")
    return Form("relation", text, tuple(sides), brackets="=" * (len(sides) - 1))


def _approximated(exact: str, rounded: str, depth: int) -> Form:
    r"""Return the exact side of `\sqrt{2} \approx 1.414`, with the rounded side in `parts`; `x \approx 3` yields 3."""
    number = _read(rounded, depth + 1)
    form = _read(exact, depth + 1) if exact.strip() else None
    if number.kind != "value":
        return form or number
    value = form.parts[-1] if form is not None and form.kind == "relation" and form.brackets == "=" else form
    if value is None or value.value is None or value.value.node[0] == "var":
        return replace(number, approximate=True)
    if form is None or value.number is None or number.number is None or not number.decimals:
        return form or number
    if abs(value.number - number.number) > 0.5000001 * 10.0**-number.decimals:
        return form
    both = replace(value, parts=(replace(number, approximate=True),))
    return both if form is value else replace(form, parts=(*form.parts[:-1], both))


def _as_interval(sides: Sequence[Form], signs: Sequence[str]) -> Form | None:
    """Return the interval that an inequality with one variable describes, or None."""
    if all(sign in ">≥" for sign in signs):
        sides, signs = sides[::-1], [FLIPPED[sign] for sign in reversed(signs)]
    nodes = [side.value.node for side in sides if side.value is not None]
    names = [index for index, node in enumerate(nodes) if node[0] == "var"]
    if len(names) != 1 or any(variables(node) for index, node in enumerate(nodes) if index != names[0]):
        return None
    below, above = sides[: names[0]], sides[names[0] + 1 :]
    if any(sign not in "<≤" for sign in signs) or max(len(below), len(above)) > 1:
        return None
    opening = "[" if below and signs[0] == "≤" else "("
    closing = "]" if above and signs[-1] == "≤" else ")"
    return Form("tuple", "", (*below, *_INFINITE[len(below) : 2 - len(above)], *above), brackets=opening + closing)


def _as_words(text: str) -> Form | None:
    """Return the form of plain words such as "even" or "no solution", or None for text that may be mathematics."""
    if _WORDS.search(text):
        only_words = not _WORDS.sub("", text).strip(" .,:;()")
        return Form("words", _word_key(text.replace(QUOTE, " "))) if only_words else None
    if _PROSE.fullmatch(text):
        letters = text.replace(" ", "")
        if len(letters) > 1 and (_CHOICE.fullmatch(text) or len(letters) > 4):
            return Form("words", _word_key(text))
    return Form("set", "∅") if "∅" in text and len(text) < 4 else None


def _word_key(text: str) -> str:
    key = " ".join(re.sub(r"[^\w\s+/-]", " ", text.lower()).split())
    return re.sub(r"^(?:the|a|an) ", "", key)


def _single(text: str) -> Form:
    """Parse a value with an optional unit, percent sign or number base; a base is treated as a unit."""
    quoted = _WORDS.search(text)
    chosen = quoted and text[: quoted.start()].strip() in ("", "(") and _CHOICE.fullmatch(quoted[1].strip())
    if quoted and chosen and not _OPERATION.match(text, quoted.end()):
        return Form("words", quoted[1].strip(" ().:").lower())
    text = _PERCENT.sub(" %", text)
    base = _BASE.fullmatch(text)
    split = _quoted_unit(text, quoted) if quoted and "%" not in text else _plain_unit(text)
    body, unit = (base[1], f"base {base[2]}") if base else (split[0].strip(), split[1])
    percent = body.endswith("%")
    body = body.removesuffix("%")
    decimal = _DECIMAL.fullmatch(body.replace(" ", ""))
    value = ExpressionValue(parse(body))
    unit = "°" if value.node[0] == "deg" else unit
    return Form("value", _squeezed(text), (), value, unit, percent, len(decimal[1]) if decimal else None)


def _quoted_unit(text: str, quoted: re.Match[str]) -> tuple[str, str | None]:
    r"""Split text such as `5\text{ cm}^2` into a value and a unit."""
    before, after = text[: quoted.start()].strip(), _WORDS.sub("", text[quoted.end() :]).strip()
    if before and not re.search(r"[A-Za-z0-9]", _POWER.sub("", after)):
        return before, unit_of(quoted[1] + after.replace("{", "").replace("}", ""))
    if before or not after:
        raise Unreadable("words within an expression")
    return after, None


def _plain_unit(text: str) -> tuple[str, str | None]:
    """Split text such as `5 cm^2` into a value and a unit; drop an unknown unit, as in `24 cups`."""
    plain = _PLAIN_UNIT.fullmatch(text)
    if plain and (unit := unit_of(plain["unit"])):
        return plain["value"], unit
    loose = _LOOSE_UNIT.fullmatch(text)
    return (loose["value"] if loose and loose["unit"].split()[0] not in FUNCTIONS else text), None


def _without_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and _closes(text):
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> bool:
    """Whether the last bracket closes the first bracket; the two kinds of bracket may differ, as in (0, 1]."""
    *before, last = _depths(text.lstrip("\\"))
    return last == 0 and 0 not in before


def _split(text: str, separator: str) -> list[str]:
    """Split text at the separators that are outside brackets."""
    pieces, start = [], 0
    for index, depth in enumerate(_depths(text)):
        if depth == 0 and text[index] == separator:
            pieces.append(text[start:index])
            start = index + 1
    return [*pieces, text[start:]]


def _depths(text: str) -> list[int]:
    """Return the number of open brackets after each character."""
    return list(accumulate((character in _OPENING) - (character in _CLOSING) for character in text))


def _squeezed(text: str) -> str:
    return _SPACE.sub("", text)


_INFINITE = (
    Form("value", "-∞", (), ExpressionValue(("neg", ("const", "inf")))),
    Form("value", "∞", (), ExpressionValue(("const", "inf"))),
)
