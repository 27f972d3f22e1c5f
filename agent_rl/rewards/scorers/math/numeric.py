r"""Parses numeric answers with GSM8K's conventions, and compares them exactly.

How a number is parsed:

- `1,234` and `1,00,000` are grouped integers; a no-break or thin space may separate groups too. A comma is never a
  decimal separator: `3,5` is two numbers.
- `%`, currencies and units after the number are ignored: `50%` is 50 and `18 dollars` is 18. The words hundred,
  thousand, million, billion and trillion multiply the number; `k` and `M` do not.
- `3/4` and `\frac{3}{4}` are exact quotients, `2 1/2` is a mixed number, and `1.5e3` and `1.5 x 10^3` are 1500.
- Expressions are not evaluated: `2+3` contains the numbers 2 and 3.

Numbers are compared as exact rationals, so that `18.00` equals 18. A difference is allowed only if one number is
visibly a rounded form of the other: see `numeric_match`.

Time and memory are bounded for any input: only the last 5,000 characters of a text are read, a number has at most 100
digits, and the exponent of a power of ten is at most 100; anything larger is not treated as a number.
"""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any

from agent_rl.rewards.scorers.extraction import FINAL, STRICT, after_thoughts, extract_formula, last_match
from agent_rl.rewards.scorers.math.latex import plain_characters

_MAX_TEXT = 5_000
_MAX_LAST = 300  # maximum distance from the start of the last number to the text's last digit, in characters
_MAX_NUMBER_TEXT = 1_000
_MAX_DIGITS = 100
_MAX_EXPONENT = 100
_DUST_DIGITS = 12
_DUST_SHARE = Fraction(1, 10**9)
_DUST_SIZE = Fraction(1, 10**6)  # far below 1, so that different integers never match

_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SYMBOLS = "$¢£¤¥₩₪₫€₱₴₹₺₽₿฿"
_CURRENCY = rf"(?:(?:[A-Z]{{1,3}})?[{_SYMBOLS}]|(?:USD|EUR|GBP|JPY|CNY|INR|AUD|CAD|CHF|Rs\.?)(?=[\s0-9.+-]))"
_UNSIGNED = (
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{2,3}){0,30},[0-9]{3}(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
    r"|(?<![A-Za-z0-9_.])\.[0-9]+)"
)
_POWER = (
    r"(?:[eE](?P<e>[-+]?[0-9]+)|\s{0,2}(?:[x*\u00d7\u00b7]|\\times|\\cdot)\s{0,2}10\s?\^\s?\{?(?P<ten>[-+]?[0-9]+)\}?)"
)
# Matching takes linear time: every repetition is bounded, or cannot be entered twice for the same characters.
_NUMBER = (
    # the number is not inside a word, a longer number or an exponent
    r"(?<![A-Za-z0-9_])(?<![0-9]\.)(?<!\^)(?<!\^\{)(?<!\^-)(?<!\^\{-)"
    r"(?:(?<![)\]}%])(?P<sign>[-+]))?"  # in `(3)-2` and `10-5` the dash is an operator
    rf"(?:{_CURRENCY}\s?(?P<inner_sign>[-+])?)?"
    r"(?:(?P<whole>[0-9]+)\s{1,3}(?P<part>[0-9]+)/(?P<parts>[0-9]+)(?![0-9./])"
    rf"|(?P<number>{_UNSIGNED}){_POWER}?(?:\s?/\s?(?P<divisor>{_UNSIGNED}))?)"
    rf"(?:\s?(?P<scale>{'|'.join(_SCALES)})\b)?"
)
_UNIT = rf"(?:-\s?[^\W\d_]|/\s?[^\W\d_]|[^\W\d_]|[°'\"({_SYMBOLS}])(?:[^0-9]|(?<=[A-Za-z^])[23]){{0,80}}"
_FIND = re.compile(_NUMBER)
_WHOLE = re.compile(rf"{_NUMBER}\s?%?\s?(?:{_UNIT})?[\s.,;:!\u3002\uff01]*")
_VAGUE = re.compile(r"\b(?:not?|never|than|least|most|between|or)\b|n't\b|[<>\u2264\u2265\u2260]", re.IGNORECASE)
_UNEQUAL = re.compile(r"[!<>]=|[\u2260\u2264\u2265]|\\(?:neq?|geq?|leq?)(?![a-zA-Z])")
_BARE = re.compile(r"\s*[-+]?[0-9][0-9,]*(?:\.[0-9]+)?\s*")
_HEDGED = re.compile(r"[0-9]\s*(?:or|and)\b", re.IGNORECASE)
_UP_TO_A_DIGIT = re.compile(r".*[0-9]", re.DOTALL)
_COMPUTED = re.compile(r"-\s*\(|[0-9)}\]]\s*[-+*/^]\s*[0-9({\[]|\)\s*[0-9]|[0-9]\s*\(")

_DIGIT_GROUPS = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]{1,40})\}\s?\{([^{}]{1,40})\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\s?\{([^{}]{0,80})\}")
_LATEX_NOISE = (
    ("{,}", ","),
    ("\\!", ""),
    ("\\,", " "),
    ("\\ ", " "),
    ("\\(", ""),
    ("\\)", ""),
    ("\\$", "$"),
    ("\\%", "%"),
    ("^\\circ", "°"),
)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number's value, and the precision with which the number was written."""

    value: Fraction
    decimals: int | None = None
    """Number of digits after a decimal number's point, or None for other notations (fractions, powers, scale words)."""
    digits: int = 0
    """Number of significant digits in a plain decimal."""


def parse_number(text: str) -> Fraction | None:
    """Return the number in text that is a single number with an optional currency and unit; None for other text."""
    number = _parse(text)
    return None if number is None else number.value


def extract_number(text: str, *, marked: bool = False, whole: bool = False) -> Fraction | None:
    r"""Return the number that a text gives as its answer.

    The number is read from the first of these locations that the text contains: the last `<answer>`, or a box in it;
    the last `####` (unless it is a heading above other text) or `\boxed{}`; after the last "answer is" or "answer:";
    the last number outside thoughts. If a marker is not followed by exactly one number, the result is None.

    Args:
        text: the response.
        marked: whether a number counts only if `<answer>`, `####` or `\boxed{}` marks it after the thoughts; if both
            `####` and `\boxed{}` occur, the later one applies.
        whole: whether the whole text is the submitted answer, so that, with `marked`, a bare number, the only number in
            a sentence and a number after "answer is" are accepted too.
    """
    number = _extract(text, marked, whole)
    return None if number is None else number.value


def numeric_match(answer: str | None, ground_truth: Any, *, marked: bool = False, whole: bool = False) -> bool:
    r"""Whether an answer's number equals the ground truth.

    `extract_number` reads the answer's number. The ground truth is a number, text that is a single number, or text that
    marks the number with `####` or `\boxed{}`. Unequal numbers, unless both are integers, match in two cases:

    - Rounding: a decimal with at least two decimal places and two significant digits matches every value that rounds to
      it in its last place. `0.33` and `0.3333` match `1/3`; `0.3332` and `0.3` do not, and `0.00` does not match
      `0.004`. With `marked`, at least six decimal places and six significant digits are required.
    - Floating-point error: a decimal written with 12 or more significant digits may be off by one part in 10^9, but not
      by more than 10^-6, so that `17.999999999999996` matches 18.

    Args:
        answer: the text of the answer; None never matches.
        ground_truth: a str, int, float, Fraction or Decimal.
        marked: see `extract_number`.
        whole: see `extract_number`.

    Raises:
        ValueError: the ground truth is not a number.
    """
    truth = None if isinstance(ground_truth, bool | None) else _truth(str(ground_truth))
    if truth is None:
        raise ValueError(f"the ground truth is not a number: {reprlib.repr(ground_truth)}")
    number = None if answer is None else _extract(answer, marked, whole)
    if number is None:
        return False
    if number.value == truth.value:
        return True
    enough = 6 if marked else 2
    return _is_near(number, truth.value, enough) or _is_near(truth, number.value, enough)


def _is_near(shown: _Number, exact: Fraction, enough: int) -> bool:
    """Whether a decimal is the exact value rounded, or differs from it only by floating-point error."""
    if not shown.decimals:
        return False
    off = abs(shown.value - exact)
    if min(shown.decimals, shown.digits) >= enough and off <= Fraction(1, 2 * 10**shown.decimals):
        return True
    return shown.digits >= _DUST_DIGITS and off <= min(_DUST_SIZE, _DUST_SHARE * abs(exact))


@lru_cache(maxsize=4096)
def _truth(text: str) -> _Number | None:
    return _parse(text) or _extract(text, marked=True, whole=False)


def _parse(text: str) -> _Number | None:
    if len(text) > _MAX_NUMBER_TEXT:
        return None
    text = re.sub(r"^([-+])\s+", r"\1", _clean(text).strip(" \t\r\n*`_\"'"))
    if text.endswith("$"):  # $18$ is an inline formula in LaTeX, 18$ is an amount of money
        text = text[:-1].rstrip()
    match = None if _HEDGED.search(text) else _WHOLE.fullmatch(text)
    return None if match is None else _value(match)


def _extract(text: str, marked: bool, whole: bool) -> _Number | None:
    text = text[-_MAX_TEXT:]
    answer = extract_formula(text, marks=FINAL if marked and whole else STRICT)
    if marked or answer is not None:
        return None if answer is None else _answer_number(answer)
    answer = extract_formula(text)
    return (None if answer is None else _answer_number(answer)) or _last(after_thoughts(text))


def _answer_number(text: str) -> _Number | None:
    """Extract the number from a short answer: all of it, the only number in a sentence, or the number after `=`."""
    if _UNEQUAL.search(text) or contradicts_itself(text):
        return None
    text = text.rpartition("=")[2]
    return _parse(text) or (None if _VAGUE.search(text) or _COMPUTED.search(text) else _only(text))


def contradicts_itself(text: str) -> bool:
    """Whether a chain of equations such as `x = 5 = 6` contains two plain numbers that differ."""
    return text.count("=") > 0 and len({parse_number(side) for side in text.split("=") if _BARE.fullmatch(side)}) > 1


def _only(text: str) -> _Number | None:
    matches = list(islice(_FIND.finditer(_clean(text)), 2))
    return _value(matches[0]) if len(matches) == 1 else None


def _last(text: str) -> _Number | None:
    text = _clean(text)
    digits = _UP_TO_A_DIGIT.match(text)
    if digits is None:
        return None
    start = text.rfind(" ", 0, max(0, digits.end() - _MAX_LAST)) + 1
    match = last_match(_FIND, text[start:])
    return None if match is None else _value(match)


def _clean(text: str) -> str:
    """Normalize the spelling of dashes, spaces, full-width digits, vulgar fractions and LaTeX."""
    if not text.isascii():
        text = plain_characters(_DIGIT_GROUPS.sub("", text))
    if "\\" in text or "{,}" in text:
        for spelling, plain in _LATEX_NOISE:
            text = text.replace(spelling, plain)
        text = _LATEX_TEXT.sub(r" \1", text)
        text = _LATEX_FRACTION.sub(_plain_fraction, text)
    return text


def _plain_fraction(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    return f"{' ' if before.isdigit() else ''}{match[1]}/{match[2]}"


def _value(match: re.Match[str]) -> _Number | None:
    """Return the matched number, or None if it is out of bounds or divides by zero."""
    groups = match.groupdict()
    exponent = groups["e"] or groups["ten"] or "0"
    whole, part, parts, number, divisor = (
        (groups[name] or "").replace(",", "") for name in ("whole", "part", "parts", "number", "divisor")
    )
    if max(map(len, (whole, part, parts, number, divisor))) > _MAX_DIGITS:
        return None
    if len(exponent) > len(str(-_MAX_EXPONENT)) or abs(int(exponent)) > _MAX_EXPONENT:
        return None
    factor = _SCALES.get(groups["scale"] or "", 1) * Fraction(10) ** int(exponent)
    if (groups["sign"] == "-") != (groups["inner_sign"] == "-"):
        factor = -factor
    try:
        if whole:
            return _Number(factor * (int(whole) + Fraction(int(part), int(parts))))
        value = factor * Fraction(number) / Fraction(divisor or 1)
    except ZeroDivisionError:
        return None
    if abs(factor) != 1 or divisor:
        return _Number(value)
    return _Number(value, len(number.partition(".")[2]), len(number.replace(".", "").lstrip("0")))
