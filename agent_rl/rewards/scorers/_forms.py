r"""What kind of thing a mathematical answer is (a value, tuple, interval, set, list, relation, matrix, words), and
whether two of them are the same.

`read` never fails: what is not understood becomes `Raw`, and a comparison with it is `Undecided`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent_rl.rewards.scorers._expression import Unreadable, parse, variables
from agent_rl.rewards.scorers._latex import QUOTE, clean, is_unit_text, unit_factor, unit_of
from agent_rl.rewards.scorers._value import Value, proportional

__all__ = ["Form", "Undecided", "read", "same"]

MAX_CHARS = 1_000
_MAX_ELEMENTS = 40
_MAX_DEPTH = 6
_OPENING, _CLOSING = "([{⟨", ")]}⟩"
_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}
_RELATION = re.compile(r"[=<>≤≥≠≈]")
_MATRIX = re.compile(r"\\begin\{([pbvBV]?(?:small)?matrix|array)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}", re.DOTALL)
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w\}?)?\s*(?:∈|:(?=\s*[\\([]))\s*(.+)|[A-Z]\s*(\([^()]*,.*\))", re.DOTALL)
_BASE = re.compile(r"([0-9A-F]+)_(?:\{?\(?([0-9]{1,2}|[a-z]+)\)?\}?)")
_WORDS = re.compile(rf"{QUOTE}([^{QUOTE}]*){QUOTE}")
_PLAIN_UNIT = re.compile(
    r"(?P<value>.*[0-9.)}}π])\s*(?P<unit>(?:[A-Za-z]{2,}[A-Za-z ./]*|[A-Za-z]/[a-z]+)(?:\^\{?[23]\}?)?)\s*"
)
_DECIMAL = re.compile(r"-?[0-9]*\.([0-9]+)")
_CHOICE = re.compile(r"\(?([A-J])[.:)]?\)?")
_PROSE = re.compile(r"[A-Za-z][A-Za-z' ,.-]*")
_SPACE = re.compile(r"[\s~]+(?![0-9])|(?<![0-9])[\s~]+")  # not between two digits
_PROPORTION = re.compile(r"\s*[0-9]+(?:\s*:\s*[0-9]+){2,8}\s*")
_CONNECTED = re.compile(r"\s+(?:or|and)\s+|;")
_BRACKET = re.compile(r"\\[{}]|[\[\](){}⟨⟩]")


class Undecided(Exception):
    """A side is not understood."""


@dataclass(frozen=True)
class Form:
    """An answer that was read.

    `kind` is value, tuple, set, list, union, interval, relation, matrix, words, base or raw. What the other fields mean
    depends on it.
    """

    kind: str
    text: str = ""
    parts: tuple[Any, ...] = ()
    value: Value | None = None
    unit: str | None = None
    percent: bool = False
    decimals: int | None = None
    brackets: str = ""


def same(answer: Form, truth: Form) -> bool:
    """Whether an answer says what the truth says.

    Raises:
        Undecided: one of them is not understood, and they are not written alike.
    """
    if answer.text and answer.text == truth.text:
        return True
    if "raw" in (answer.kind, truth.kind):
        raise Undecided
    if answer.kind == truth.kind:
        return _SAME[answer.kind](answer, truth)
    return _across(answer, truth)


@lru_cache(maxsize=8192)
def read(text: str) -> Form:
    """The form of a text of at most `MAX_CHARS` characters; a longer one is raw."""
    if len(text) > MAX_CHARS:
        return Form("raw", text)
    try:
        return _read(clean(text), 0)
    except RecursionError:
        return Form("raw", text)


def _read(text: str, depth: int) -> Form:
    text = text.strip().strip("\"'").strip()
    if depth > _MAX_DEPTH:
        return Form("raw", text)
    whole = _without_braces(text)
    named = _NAMED.fullmatch(whole)
    if named and (named[1] or _closes(named[2])):
        return _read(named[1] or named[2], depth + 1)
    if "\\begin" in whole or "&" in whole:
        return _matrix(whole, depth)
    base = _BASE.fullmatch(whole)
    if base and not whole[0].isalpha():
        return Form("base", whole, (base[1], base[2]))
    words = _as_words(whole)
    if words is not None:
        return words
    pieces = _split(whole, ",")
    if len(pieces) == 1:
        pieces = [piece for piece in _CONNECTED.split(whole) if piece.strip()]
    if len(pieces) > 1:
        pieces = [piece for piece in pieces if piece.strip()]
        return _sequence("list", whole, pieces, depth) if len(pieces) > 1 else _read("".join(pieces), depth + 1)
    if _PROPORTION.fullmatch(whole):
        return _sequence("tuple", whole, whole.split(":"), depth, ":")
    if "±" in whole or "∓" in whole:
        both = [whole.replace("±", "+").replace("∓", "-"), whole.replace("±", "-").replace("∓", "+")]
        return _sequence("list", _squeezed(whole), both, depth)
    if "∪" in whole:
        return _sequence("union", _squeezed(whole), _split(whole, "∪"), depth)
    bracketed = _bracketed(whole, depth)
    if bracketed is not None:
        return bracketed
    if _RELATION.search(whole):
        return _relation(whole, depth)
    return _single(whole)


def _sequence(kind: str, text: str, pieces: Sequence[str], depth: int, brackets: str = "") -> Form:
    if len(pieces) > _MAX_ELEMENTS:
        return Form("raw", text)
    parts = tuple(_read(piece, depth + 1) for piece in pieces)
    if any(part.kind == "raw" for part in parts):
        return Form("raw", _squeezed(text))
    return Form(kind, _squeezed(text), parts, brackets=brackets)


def _bracketed(text: str, depth: int) -> Form | None:
    """A tuple, interval, set or union of one; None when the brackets are those of an expression."""
    if text.startswith("\\{") and text.endswith("\\}"):
        inner = text[2:-2]
        if not inner.strip():
            return Form("set", "∅")
        if "|" in inner or ":" in inner:
            return Form("raw", _squeezed(text))
        return _sequence("set", text, _split(inner, ","), depth)
    if text[:1] in "([⟨" and text[-1:] in ")]⟩" and _closes(text):
        pieces = _split(text[1:-1], ",")
        if len(pieces) > 1:
            brackets = (text[0] + text[-1]).replace("⟨", "(").replace("⟩", ")")
            return _sequence("tuple", text, pieces, depth, brackets)
    return None


def _matrix(text: str, depth: int) -> Form:
    lhs, equals, rest = text.partition("=")
    if equals and len(lhs.strip()) <= 12 and "\\begin" not in lhs:
        text = rest.strip()
    match = _MATRIX.fullmatch(text.strip().strip("()[] "))
    if match is None or match[1].startswith(("v", "V")):
        return Form("raw", _squeezed(text))
    rows = [row for row in re.split(r"\\\\", match[2]) if row.strip()]
    read_rows = tuple(tuple(_read(cell, depth + 1) for cell in row.split("&")) for row in rows)
    if sum(map(len, read_rows)) > _MAX_ELEMENTS or any(cell.kind == "raw" for row in read_rows for cell in row):
        return Form("raw", _squeezed(text))
    return Form("matrix", _squeezed(text), read_rows)


def _relation(text: str, depth: int) -> Form:
    pieces, signs = [], []
    start = 0
    for match in _RELATION.finditer(text):
        pieces.append(text[start : match.start()])
        signs.append(match[0])
        start = match.end()
    pieces.append(text[start:])
    if "≈" in signs:  # what stands before is exact
        return _read("=".join(pieces[: signs.index("≈") + 1]), depth + 1)
    sides = tuple(_read(piece, depth + 1) for piece in pieces)
    if set(signs) == {"="} and sides[-1].kind not in ("value", "raw"):
        return sides[-1]
    if len(sides) > 4 or any(side.kind != "value" for side in sides):
        return Form("raw", _squeezed(text))
    if set(signs) == {"="} and len(sides) > 1:
        first, last = sides[0], sides[-1]
        if not variables(first.value.node) and all(_same_value(side, last) for side in sides[:-1]):  # type: ignore[union-attr]
            return last
        return Form("relation", _squeezed(text), (first, last), brackets="=")
    interval = _as_interval(sides, signs)
    if interval is not None:
        return interval
    return Form("relation", _squeezed(text), sides, brackets="".join(signs))


def _as_interval(sides: tuple[Form, ...], signs: list[str]) -> Form | None:
    """The interval that an inequality about one variable describes."""
    if any(sign in "=≠" for sign in signs):
        return None
    nodes = [side.value.node for side in sides if side.value is not None]
    names = [index for index, node in enumerate(nodes) if node[0] == "var"]
    if len(names) != 1 or any(variables(node) for index, node in enumerate(nodes) if index != names[0]):
        return None
    at = names[0]
    if len(sides) == 2:
        sign = signs[0] if at == 0 else _FLIPPED[signs[0]]
        bound = sides[1 - at]
        if sign in "<≤":
            return Form("tuple", "", (_INFINITE[0], bound), brackets="(" + (")" if sign == "<" else "]"))
        return Form("tuple", "", (bound, _INFINITE[1]), brackets=("(" if sign == ">" else "[") + ")")
    if len(sides) == 3 and at == 1 and all(sign in "<≤" for sign in signs):
        return Form(
            "tuple",
            "",
            (sides[0], sides[2]),
            brackets=("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]"),
        )
    if len(sides) == 3 and at == 1 and all(sign in ">≥" for sign in signs):
        return Form(
            "tuple",
            "",
            (sides[2], sides[0]),
            brackets=("(" if signs[1] == ">" else "[") + (")" if signs[0] == ">" else "]"),
        )
    return None


def _as_words(text: str) -> Form | None:
    """Plain words, such as "even" or "no solution"; None for what may be mathematics."""
    quoted = _WORDS.search(text)
    if quoted:
        outside = _WORDS.sub("", text).strip(" .,:;()")
        if not outside:
            return Form("words", _word_key(text.replace(QUOTE, " ")))
        return None
    if _PROSE.fullmatch(text):
        letters = text.replace(" ", "")
        if _CHOICE.fullmatch(text) or (len(letters) > 4 and not _parses_short(text)):
            return Form("words", _word_key(text)) if len(letters) > 1 else None
    if "∅" in text and len(text) < 4:
        return Form("set", "∅")
    return None


def _parses_short(text: str) -> bool:
    return bool(re.fullmatch(r"(?:[a-z]\s?){1,6}", text)) and not re.search(r"[a-z]{5,}", text)


def _word_key(text: str) -> str:
    key = " ".join(re.sub(r"[^\w\s+/-]", " ", text.lower()).split())
    return re.sub(r"^(?:the|a|an) ", "", key)


def _single(text: str) -> Form:
    """A value, perhaps with a unit, a currency or a percent sign."""
    unit = None
    body = text
    quoted = _WORDS.search(body)
    if quoted:
        before, after = body[: quoted.start()].strip(), body[quoted.end() :].strip()
        if before in ("", "(") and _CHOICE.fullmatch(quoted[1].strip()):
            return Form("words", quoted[1].strip(" ().:").lower())
        after = _WORDS.sub("", after).strip()
        if before and not re.search(
            r"[A-Za-z0-9]", after.replace("^2", "").replace("^3", "").replace("^{2}", "").replace("^{3}", "")
        ):
            unit = unit_of(quoted[1] + after.replace("{", "").replace("}", ""))
            body = before
        elif not before and after:
            body = after
        else:
            return Form("raw", _squeezed(text))
    else:
        plain = _PLAIN_UNIT.fullmatch(body)
        if plain and is_unit_text(re.sub(r"\^\{?[23]\}?$", "", plain["unit"]).strip()):
            unit, body = unit_of(plain["unit"]), plain["value"]
    body = body.strip()
    percent = body.endswith("%")
    if percent:
        body = body[:-1]
    decimal = _DECIMAL.fullmatch(body.replace(" ", ""))
    try:
        value = Value(parse(_ratio(body)))
    except Unreadable:
        return Form("raw", _squeezed(text))
    return Form("value", _squeezed(text), (), value, unit, percent, len(decimal[1]) if decimal else None)


def _ratio(text: str) -> str:
    """`3:2` as a quotient."""
    match = re.fullmatch(r"\s*([0-9]{1,6})\s*:\s*([1-9][0-9]{0,5})\s*", text)
    return f"{match[1]}/{match[2]}" if match else text


def _same_value(answer: Form, truth: Form) -> bool:
    one, other = answer.value, truth.value
    assert one is not None
    assert other is not None
    factor = _unit_ratio(answer.unit, truth.unit)
    if factor is None:
        return False
    if factor != 1.0:
        left, right = one.number, other.number
        return left is not None and right is not None and abs(left * factor - right) <= 1e-9 * max(abs(right), 1e-9)
    if one.equals(other):
        return True
    if answer.percent != truth.percent and one.exact is not None and other.exact is not None:
        return one.exact in (other.exact * 100, other.exact / 100)
    return _rounded(answer, truth)


def _unit_ratio(answer: str | None, truth: str | None) -> float | None:
    """What the answer's number is multiplied with to be in the truth's unit; None when the units do not go together."""
    if answer is None or truth is None or answer == truth:
        return 1.0
    (dimension, factor), (other_dimension, other_factor) = unit_factor(answer), unit_factor(truth)
    return factor / other_factor if dimension == other_dimension else None


def _rounded(answer: Form, truth: Form) -> bool:
    """Whether one side is visibly the rounded form of the other.

    A truth with two decimals and more stands for every exact value that rounds to it; an answer needs six of them.
    """
    shown, exact = (truth, answer) if truth.decimals is not None and answer.decimals is None else (answer, truth)
    enough = 2 if shown is truth else 6
    if shown.decimals is None or shown.decimals < enough or shown.value is None or exact.value is None:
        return False
    if shown is truth and exact.value.exact is not None and exact.value.exact.denominator == 1:
        return False
    one, other = shown.value.number, exact.value.number
    if one is None or other is None or abs(one) < 10.0 ** (1 - shown.decimals):
        return False
    return abs(one - other) <= 0.5000001 * 10.0**-shown.decimals


def _same_relation(answer: Form, truth: Form) -> bool:
    if len(answer.parts) != 2 or len(truth.parts) != 2:
        pairs = zip(answer.parts, truth.parts, strict=False)
        return answer.brackets == truth.brackets and all(_same_value(*pair) for pair in pairs)
    ratio = proportional(_difference(answer), _difference(truth))
    if answer.brackets in "=≠":
        return answer.brackets == truth.brackets and ratio != 0
    sign = answer.brackets if ratio > 0 else _FLIPPED[answer.brackets]
    return ratio != 0 and sign == truth.brackets


def _difference(relation: Form) -> Value:
    left, right = relation.parts
    return Value(("add", left.value.node, ("neg", right.value.node)))


def _same_order(answer: Sequence[Form], truth: Sequence[Form]) -> bool:
    return len(answer) == len(truth) and all(same(*pair) for pair in zip(answer, truth, strict=True))


def _any_order(answer: Sequence[Form], truth: Sequence[Form]) -> bool:
    left = list(truth)
    for part in answer:
        found = next((index for index, other in enumerate(left) if same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _same_tuple(answer: Form, truth: Form) -> bool:
    return answer.brackets == truth.brackets and _same_order(answer.parts, truth.parts)


def _same_set(answer: Form, truth: Form) -> bool:
    return _any_order(answer.parts, truth.parts)


def _same_matrix(answer: Form, truth: Form) -> bool:
    return len(answer.parts) == len(truth.parts) and all(map(_same_order, answer.parts, truth.parts))


def _same_base(answer: Form, truth: Form) -> bool:
    return bool(answer.parts == truth.parts)


def _never(answer: Form, truth: Form) -> bool:
    """Words that are not written alike."""
    return False


_SAME = {
    "value": _same_value,
    "tuple": _same_tuple,
    "set": _same_set,
    "list": _same_set,
    "union": _same_set,
    "relation": _same_relation,
    "matrix": _same_matrix,
    "base": _same_base,
    "words": _never,
}


def _across(answer: Form, truth: Form) -> bool:
    """Forms of two kinds."""
    kinds = {answer.kind, truth.kind}
    for one, other in ((answer, truth), (truth, answer)):
        if one.kind == "relation" and one.brackets == "=" and other.kind in ("value", "base"):
            return _is_name(one.parts[0]) and same(*((one.parts[1], other) if one is answer else (other, one.parts[1])))
        if one.kind == "base" and other.kind == "value":
            return bool(one.parts[0] == other.text)
        if one.kind == "set" and len(one.parts) == 1 and other.kind == "value":
            return same(*((one.parts[0], other) if one is answer else (other, one.parts[0])))
        if one.kind == "matrix" and other.kind == "tuple" and all(len(row) == 1 for row in one.parts):
            column = [row[0] for row in one.parts]
            return other.brackets == "()" and _same_order(
                *((column, other.parts) if one is answer else (other.parts, column))
            )
        if one.kind == "matrix" and other.kind == "tuple" and len(one.parts) == 1:
            row = one.parts[0]
            return other.brackets == "()" and _same_order(
                *((row, other.parts) if one is answer else (other.parts, row))
            )
        if one.kind == "list" and other.kind == "value":  # "1/2 or 0.5"
            return all(same(*((part, other) if one is answer else (other, part))) for part in one.parts)
        if one.kind == "words" and other.kind == "value":
            return one.text == other.text.strip("()").lower()
    if kinds == {"list", "set"}:
        return _any_order(answer.parts, truth.parts)
    if kinds == {"list", "union"}:
        return _any_order(answer.parts, truth.parts)
    if kinds == {"list", "tuple"}:
        listed, bracketed = (answer, truth) if answer.kind == "list" else (truth, answer)
        return bracketed.brackets == "()" and _same_order(
            *((listed.parts, bracketed.parts) if listed is answer else (bracketed.parts, listed.parts))
        )
    return False


def _is_name(side: Form) -> bool:
    """Whether a side of an equation only names what the other side is: `x`, `f(x)`, `P(A)`."""
    node = side.value.node if side.value else ()
    if node and node[0] == "var":
        return True
    return bool(re.fullmatch(r"[A-Za-z]\w{0,5}(?:_\{?\w+\}?)?'?(?:\([A-Za-z0-9, ]{1,12}\))?|[A-Z]{2,4}", side.text))


def _without_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and _closes(text):
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> bool:
    """Whether the first bracket is closed by the last one. Brackets need not be of one kind: (0, 1]."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0][-1] in _OPENING else -1
        if depth == 0:
            return match.end() == len(text)
    return False


def _split(text: str, separator: str) -> list[str]:
    """`text` at the separators that stand in no bracket."""
    pieces, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == separator and depth == 0:
            pieces.append(text[start:index])
            start = index + 1
    pieces.append(text[start:])
    return pieces


def _squeezed(text: str) -> str:
    return _SPACE.sub("", text)


_INFINITE = (
    Form("value", "-∞", (), Value(("neg", ("const", "inf")))),
    Form("value", "∞", (), Value(("const", "inf"))),
)
