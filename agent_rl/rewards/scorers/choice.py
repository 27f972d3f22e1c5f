r"""Scores multiple-choice answers: 1.0 if the answer contains the right letter, else 0.0.

The letter is read from `<answer>`, from `\boxed{}`, after "the answer is" and at the start of a short text: `B`, `(B)`,
`B. Paris`, `**B**`, `option B`, `the second option`, but not `B-cell`. An answer with two letters is wrong. The ground
truth is a letter, or the index of the choice, starting at 0. If `extra_info["choices"]` lists the choices, the text of
a choice is accepted instead of its letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.rewards.scorers.extraction import after_thoughts, marked_answer, marked_part
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

SOURCES = (
    *("gpqa*", "*/gpqa*", "mmlu*", "cais/mmlu", "TIGER-Lab/MMLU-Pro", "allenai/ai2_arc", "allenai/math_qa"),
    *("ScalerLab/JudgeBench", "preference_pairs"),
)
_MAX_TEXT = 50_000
_LETTER = r"(?:[\s*_`\"'({\[$]|\\text\w*|\\mathrm|\\\()*(?P<letter>[A-Za-z])(?=[\s*_`\"')}\]$.:,;!]|\\\)|$)"
_NAMED = re.compile(rf"(?i:option|choice|answer)\s*(?:is\b)?\s*:?{_LETTER}")
_QUOTES = dict.fromkeys(map(ord, "\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019\u201a"), '"')
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_COUNTED = re.compile(
    rf"(?i)\b(?:(?:(?P<word>{'|'.join(_ORDINALS)}|last)|(?P<ordinal>[0-9])(?:st|nd|rd|th))\s+"
    r"(?:option|choice|answer|alternative)|(?:option|choice)\s+(?:number\s+|#)?\(?(?P<digits>[0-9]{1,2}))\b"
)
_LISTED = re.compile(r"\(([A-J])\)|(?<![A-Za-z])([A-J])[.)](?=\s|$)")
_FIRST = re.compile(_LETTER)
_OTHER = re.compile(r"(?:\bor\b|\band\b|,|/|&)\s*(?:option\s+)?[\s*(]*(?P<letter>[A-Z])[\s*).]*$")


@built_in("choice", *SOURCES, inline=True)
def score_choice(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Whether the answer names the right choice.

    Raises:
        UnscoredError: the ground truth is not a choice.
    """
    choices = as_data(extra_info.get("choices"))
    texts = [str(text) for text in choices] if isinstance(choices, Sequence) and not isinstance(choices, str) else []
    truth = _truth(ground_truth, texts)
    return float(extract_choice(solution, texts) == truth)


def extract_choice(solution: str, choices: Sequence[str] = ()) -> str | None:
    """Extract the letter from a response, in upper case; None if the response contains no letter, or two letters."""
    text = after_thoughts(solution[-_MAX_TEXT:])
    marked = marked_part(text, joined=True)
    if marked is None:
        return _choice(marked_answer(text) or text, choices)
    return _choice(marked, choices) or _choice(marked_answer(marked) or "", choices)


def _choice(answer: str, choices: Sequence[str]) -> str | None:
    answer = unicodedata.normalize("NFKC", answer.strip()).translate(_QUOTES)
    if not answer or len(answer) > 500:
        return None
    if _key(answer) and (choice := _letter_of(answer, choices)):
        return choice
    if by_count := counted_choice(answer, len(choices)):
        return by_count
    match = _NAMED.match(answer) or _FIRST.match(answer)
    if match is None:
        return None
    letter, after = match["letter"], answer[match.end("letter") :]
    rest = after.strip()
    is_word = letter.islower() and rest.strip(" .)*}") and not rest.startswith((")", ".", ":"))  # such as "a cat"
    is_capital_word = letter in "AI" and re.match(r"\s+(?!or\b|and\b)[a-z]", after) and not answer.startswith("(")
    other = _OTHER.search(after[:60])
    letters = {name.upper() for pair in _LISTED.findall(after[:200]) for name in pair if name} | (
        {other["letter"]} if other else set()
    )
    is_ambiguous = bool(letters - {letter.upper()})
    return None if is_word or is_capital_word or is_ambiguous else letter.upper()


def counted_choice(answer: str, number: int = 0) -> str | None:
    """Return the letter of the only choice in text such as "the second option" or "option 2"; None for other text.

    Args:
        answer: a short text.
        number: number of choices, or 0 if unknown; if it is 0, "the last option" does not name a choice.
    """
    letters = set()
    for match in _COUNTED.finditer(answer):
        word = match["word"].lower() if match["word"] else ""
        place = number if word == "last" else int(match["digits"] or match["ordinal"] or _ORDINALS.index(word) + 1)
        letters.add(chr(ord("A") + place - 1) if 0 < place <= (number or 10) else "")
    return letters.pop() or None if len(letters) == 1 else None


def _truth(ground_truth: Any, choices: Sequence[str]) -> str:
    if isinstance(ground_truth, int) and not isinstance(ground_truth, bool) and 0 <= ground_truth < 26:
        return chr(ord("A") + ground_truth)
    if isinstance(ground_truth, str):
        letter = re.fullmatch(r"\s*\(?([A-Za-z])[).:]?\s*", ground_truth)
        named = letter[1].upper() if letter else _letter_of(ground_truth, choices)
        truths = {named} if named else set[str]()
        if re.fullmatch("[0-9]{1,2}", ground_truth) and int(ground_truth) < (len(choices) or 26):
            truths.add(chr(ord("A") + int(ground_truth)))  # rows contain an index as text
        if len(truths) == 1:
            return truths.pop()
    raise unusable(ground_truth, "the letter, the index or the text of exactly one choice")


def _letter_of(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter of the choice with this text, or None."""
    key = _key(text)
    return next((chr(ord("A") + index) for index, choice in enumerate(choices) if _key(choice) == key), None)


def _key(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .")
