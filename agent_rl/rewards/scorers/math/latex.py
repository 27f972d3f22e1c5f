r"""Normalizes the spelling of LaTeX, Unicode and plain text, and parses the units that follow a number."""

from __future__ import annotations

import re
import unicodedata

from agent_rl.tools.builtin._calculator.reader import SIGNS

QUOTE = "\x01"
"""Character that encloses words that are text rather than a product of variables."""

_SPACING = """
left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits angle triangle phantom hline quad
qquad rm bf it
"""
_COMMANDS = {
    **dict.fromkeys(_SPACING.split(), " "),
    **dict.fromkeys(("dfrac", "tfrac", "cfrac", "frac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom", "binom"), r"\binom"),
    **dict.fromkeys(("cdot", "times", "ast", "cdotp"), "*"),
    **dict.fromkeys(("le", "leq", "leqslant", "leqq"), "≤"),
    **dict.fromkeys(("ge", "geq", "geqslant", "geqq"), "≥"),
    **dict.fromkeys(("ne", "neq", "not="), "≠"),
    **dict.fromkeys(("approx", "simeq", "doteq"), "≈"),
    **dict.fromkeys(("emptyset", "varnothing"), "∅"),
    **dict.fromkeys(("lvert", "rvert", "vert", "mid"), "|"),
    **dict.fromkeys(("cup", "bigcup"), "∪"),
    **dict.fromkeys(("langle", "lang"), "⟨"),
    **dict.fromkeys(("rangle", "rang"), "⟩"),
    **dict.fromkeys(("degree", "degrees"), "°"),
    **{"lbrace": r"\{", "rbrace": r"\}"},
    **{"lt": "<", "gt": ">", "div": "/", "pi": "π", "infty": "∞", "pm": "±", "mp": "∓", "in": "∈", "colon": ":"},
    **{"lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "land": "∧", "wedge": "∧", "lor": "∨", "vee": "∨"},
    **{"ldots": "…", "dots": "…", "cdots": "…", "Longrightarrow": "⇒", "Rightarrow": "⇒", "implies": "⇒"},
}
_SIGNS = {",": " ", "!": "", ";": " ", ":": " ", " ": " ", "$": "", "(": "", ")": "", "[": "", "]": "", "%": "%"}
_SIGNS |= {"{": r"\{", "}": r"\}", "|": "|", "\\": r"\\", "&": "&", "#": "#", "_": "_", ">": " ", "-": ""}
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mathbf|mathsf|mathit|mbox|hbox|operatorname\*?|"
    r"boldsymbol|bm|emph|bold|mathcal|mathbb|boxed|fbox)\s*\{([^{}]{0,300})\}"
)
_SYMBOLS = frozenset("eidxyzCPABD")
_COMMAND = re.compile(r"\\(?:([a-zA-Z]+)|(.))", re.DOTALL)
_DEGREES = re.compile(r"\^\s?(?:\\circ|\{\\circ\}|°|\{°\})")
_GROUPS = re.compile(r"(?<![0-9.])([1-9][0-9]{0,2})((?:,[0-9]{3})+)(?![0-9])")
_TIGHT = re.compile(r"(?<=[0-9]),\s*\\!\s*(?=[0-9]{3})")  # the MATH data set writes 1,234 as 1,\!234
_SPACED = re.compile(r"(?<![0-9.])[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])")
_MIXED = re.compile(
    r"(?<![0-9./^_{])([0-9]{1,6})(?:\s+|\s*-\s*(?=[0-9]+/[0-9]+\s+[a-z]))([0-9]{1,6})/([1-9][0-9]{0,5})(?![0-9.])"
)
_UNEQUAL = re.compile(r"(?<![0-9)\]}!\s])!=|(?<=\s)!=|<>")
_LATEX_MIXED_GAP = re.compile(r"(?<=[0-9])\s+(?=\\frac)")
_CHARACTERS = SIGNS | str.maketrans(
    {
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", None),
        **{"²": "^2", "³": "^3", "⁴": "^4", "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4"},
        **{"⅛": " 1/8", "√": "\\sqrt", "º": "°", "˚": "°"},
        **{"θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "λ": "\\lambda ", "φ": "\\phi "},
        **{"，": ",", "；": ";", "：": ":", "、": ",", "。": ".", "’": "'", "′": "'", "“": '"', "”": '"'},
    }
)

_MEASURES = """
length 1 m meter meters metre metres
length 0.01 cm centimeter centimeters centimetre centimetres
length 0.001 mm millimeter millimeters
length 1000 km kilometer kilometers kilometre kilometres
length 0.3048 ft foot feet
length 0.0254 in inch inches
length 0.9144 yd yard yards
length 1609.344 mi mile miles
mass 1 kg kilogram kilograms
mass 0.001 g gram grams
mass 1e-6 mg milligrams
mass 1000 ton tons tonne tonnes
weight 1 lb lbs pound pounds
weight 0.0625 oz ounce ounces
time 1 s sec second seconds
time 60 min minute minutes
time 3600 h hr hour hours
time 86400 day days
time 604800 week weeks
money 1 dollar dollars usd
money 0.01 cent cents
angle 1 degree degrees °
volume 1 l liter liters litre litres
volume 0.001 ml milliliter milliliters
"""
"""Each line has a dimension, a unit's size in the dimension's base unit, and the unit's names."""
_UNITS = {
    name: (dimension, float(factor))
    for dimension, factor, *names in map(str.split, _MEASURES.strip().splitlines())
    for name in names
}


def plain_characters(text: str) -> str:
    """Normalize dashes, spaces, full-width digits, vulgar fractions and mathematical signs."""
    return unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)


def clean(text: str) -> str:
    """Normalize text: remove `$` and spacing commands, use `*`, π, ∞, ≤, ∪ and °, and put words in `QUOTE`s."""
    if not text.isascii():
        text = plain_characters(text)
    text = text.replace("\x00", "").replace(QUOTE, "")
    text = text.replace("{,}", ",")
    if "\\" in text:
        if "\\begin" not in text:
            text = text.replace("\\\\", "\\")  # in case the backslashes were escaped twice
        text = _TIGHT.sub("", text).replace("\\!", "").replace("^{\\prime}", "'").replace("\\prime", "'")
        text = _DEGREES.sub("°", text)
        for _ in range(3):
            text, count = _TEXT.subn(_quoted, text)
            if not count:
                break
        text = _COMMAND.sub(_command, text)
        text = _LATEX_MIXED_GAP.sub("", text)
    elif "^" in text:
        text = _DEGREES.sub("°", text)
    text = text.replace("$", "").replace("**", "^")
    if "=" in text or "<>" in text:
        text = _UNEQUAL.sub("≠", text).replace("<=", "≤").replace(">=", "≥")
    if "/" in text:
        text = _MIXED.sub(r"(\1+\2/\3)", text)
    text = _grouped(text.strip().rstrip(".。").strip())
    return _SPACED.sub(lambda match: match[0].replace(" ", ""), text)


def unit_of(text: str) -> str | None:
    """Convert the words after a number to a unit ("square cm" is "cm^2"), or return None for an unknown unit."""
    words = text.lower().replace(QUOTE, " ").replace("²", "^2").strip(" .*")
    words = re.sub(r"\b(?:sq|square)\.?\s+(\w+)", r"\1^2", words)
    words = re.sub(r"\bcubic\s+(\w+)", r"\1^3", words).replace("{", "").replace("}", "").replace(" ^", "^")
    base = words.split("^")[0].strip()
    return words if base in _UNITS or words in _UNITS else None


def unit_factor(unit: str) -> tuple[str, float]:
    """Return a unit's dimension, and its size in the dimension's base unit."""
    base, _, power = unit.partition("^")
    dimension, factor = _UNITS.get(base.strip(), (base, 1.0))
    order = int(power) if power in ("2", "3") else 1
    return f"{dimension}^{order}", factor**order


def _quoted(match: re.Match[str]) -> str:
    content = match[1].strip()
    command = match[0][1:].split("{")[0].strip()
    if command in ("mathbb", "mathcal"):
        return {"R": "ℝ", "Z": "ℤ", "N": "ℕ", "Q": "ℚ", "C": "ℂ"}.get(content, f"{QUOTE}{content}{QUOTE}")
    lowered = content.lower()
    if lowered in ("or", "and"):
        return ", "
    if command in ("boxed", "fbox") or not any(letter.isalpha() for letter in content):
        return f" {content} "
    if command.startswith(("math", "bold", "bm")) and (content in _SYMBOLS or "\\" in content):
        return f" {content} "
    if command.startswith("operatorname") or lowered in ("sin", "cos", "tan", "ln", "log"):
        return f"\\{content} "
    if "\\" in content or "=" in content:
        return f" {content} "
    return f" {QUOTE}{content}{QUOTE} "


def _command(match: re.Match[str]) -> str:
    name, sign = match[1], match[2]
    if name is None:
        return _SIGNS.get(sign, sign)
    return _COMMANDS.get(name, match[0])


def _grouped(text: str) -> str:
    """Remove the commas between groups of three digits, unless they may separate the elements of a tuple."""
    inside = text[:1] in "([⟨" or text.startswith("\\{")
    if inside and not re.search(r",\s", text):
        return text
    return _GROUPS.sub(lambda match: match[1] + match[2].replace(",", ""), text)
