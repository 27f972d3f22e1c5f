r"""Multiple choice: 1.0 when the answer names the right letter, else 0.0.

The letter is looked for in `<answer>`, in `\boxed{}`, after "the answer is" and at the begin of a short text: `B`,
`(B)`, `B. Paris`, `**B**`, `option B`. An answer that names two different letters names none. The ground truth is a
letter, or the number of the choice, counted from 0. With `extra_info["choices"]`, a list, the text of a choice stands
for its letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.rewards.scorers.extraction import last_boxed, last_tag, marked_answer
from agent_rl.rewards.scorers.scorer import built_in, unusable

__all__ = ["extract_choice", "score_choice"]

_MAX_TEXT = 50_000
_LETTER = r"(?:[\s*_`\"'({\[$]|\\text\w*|\\mathrm|\\\()*(?P<letter>[A-Za-z])(?=[\s*_`\"')}\]$.:,;]|\\\)|$)"
_NAMED = re.compile(rf"(?i:option|choice|answer)\s*(?:is\b)?\s*:?{_LETTER}")
_FIRST = re.compile(_LETTER)
_OTHER = re.compile(r"(?:\bor\b|\band\b|,|/|&)\s*(?:option\s+)?[\s*(]*(?P<letter>[A-Z])[\s*).]*$")


@built_in("choice", "gpqa*", "*/gpqa*", "mmlu*", "cais/mmlu", "TIGER-Lab/MMLU-Pro", "allenai/ai2_arc", inline=True)
def score_choice(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Whether the right choice was named.

    Raises:
        UnscoredError: the ground truth is no choice.
    """
    choices = extra_info.get("choices")
    texts = [str(text) for text in choices] if isinstance(choices, Sequence) and not isinstance(choices, str) else []
    truth = _truth(ground_truth, texts)
    return float(extract_choice(solution, texts) == truth)


def extract_choice(solution: str, choices: Sequence[str] = ()) -> str | None:
    """The letter, in upper case, that a response names; None when it names none, or two."""
    text = solution[-_MAX_TEXT:]
    tagged = last_tag(text)
    text = text if tagged is None else tagged
    boxed = last_boxed(text)
    answer = boxed if boxed is not None else tagged
    if answer is None:
        answer = marked_answer(text) or text.strip()
    answer = answer.strip()
    if not answer or len(answer) > 500:
        return None
    key = _key(answer)
    for index, choice in enumerate(choices):
        if key and key == _key(choice):
            return chr(ord("A") + index)
    match = _NAMED.match(answer) or _FIRST.match(answer)
    if match is None:
        return None
    letter = match["letter"]
    rest = answer[match.end("letter") :].strip()
    if letter.islower() and rest.strip(" .)*}") and not rest.startswith((")", ".", ":")):
        return None  # "a cat" is no choice
    if (
        letter in "AI"
        and re.match(r"\s+(?!or\b|and\b)[a-z]", answer[match.end("letter") :])
        and not answer.startswith("(")
    ):
        return None  # nor is "A cat"
    other = _OTHER.search(answer[match.end("letter") :][:60])
    if other and other["letter"] != letter.upper():
        return None
    return letter.upper()


def _truth(ground_truth: Any, choices: Sequence[str]) -> str:
    if isinstance(ground_truth, int) and not isinstance(ground_truth, bool) and 0 <= ground_truth < 26:
        return chr(ord("A") + ground_truth)
    if isinstance(ground_truth, str):
        letter = re.fullmatch(r"\s*\(?([A-Za-z])[).:]?\s*", ground_truth)
        if letter:
            return letter[1].upper()
        for index, choice in enumerate(choices):
            if _key(choice) == _key(ground_truth):
                return chr(ord("A") + index)
    raise unusable(ground_truth, "a letter, the number of a choice or the text of one")


def _key(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .")
