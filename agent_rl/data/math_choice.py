"""Converts multiple-choice questions to rows: MathQA, MMLU, MMLU-Pro, ARC.

    {"Problem" or "problem": ..., "options": "a ) 21 , b ) 29", "correct": "a"}          MathQA
    {"question": ..., "choices": ["...", ...], "answer": 2}                              MMLU
    {"question": ..., "options": ["...", ...], "answer": "C", "answer_index": 2}         MMLU-Pro
    {"question": ..., "choices": {"text": [...], "label": [...]}, "answerKey": "C"}      ARC

The ground truth is a letter; the `choice` scorer also accepts the text of the choice, from `extra_info.choices`.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.data.conversion import Hub, RawSet, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.errors import ConfigError

_OPTION = re.compile(r"(?:^|[\s,])([a-z])\s\)\s?")


@makes_row
def to_row(example: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples."""
    question = text_of(example, "question", "Problem", "problem").strip()
    source, choices, answer = _parts(example)
    letters = [chr(ord("A") + number) for number in range(len(choices))]
    if answer not in letters:
        problem = f"the answer {answer!r} is not one of the {len(choices)} choices"
        raise ConfigError("column answer", problem, "Correct the row, or remove it")
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip(letters, choices, strict=True))
    info = {name: example[name] for name in ("subject", "category", "type") if example.get(name) is not None}
    return {
        "prompt": f"{question}\n\n{listed}\n\nAnswer with the letter of the right choice.",
        "question": question,
        "data_source": source,
        "ground_truth": answer,
        "ability": "choice",
        "extra_info": {"choices": choices, **info},
    }


def _parts(example: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """Return the data source, the choices and the letter of the right choice."""
    options = value_of(example, "choices", "options")
    if isinstance(options, str):
        if options.startswith("["):  # a printed Python list
            with contextlib.suppress(ValueError, SyntaxError):
                options = " , ".join(map(str, ast.literal_eval(options)))
        parts = _OPTION.split(options)
        letters, texts = parts[1::2], [text.strip().rstrip(",").strip() for text in parts[2::2]]
        if not texts or letters != [chr(ord("a") + number) for number in range(len(texts))]:
            raise ConfigError("column options", f"{options!r:.80} is not a list of options", "Write a ) ... , b ) ...")
        return "allenai/math_qa", texts, text_of(example, "correct").strip().upper()
    if isinstance(options, Mapping):
        labels, texts = list(value_of(options, "label")), _texts(value_of(options, "text"))
        key = str(value_of(example, "answerKey"))
        return "allenai/ai2_arc", texts, chr(ord("A") + labels.index(key)) if key in labels else key
    answer = value_of(example, "answer", "answer_index")
    is_number = isinstance(answer, int) or (isinstance(answer, str) and answer.isdecimal())
    letter = chr(ord("A") + int(answer)) if is_number else str(answer).strip().upper()
    return "TIGER-Lab/MMLU-Pro" if "answer_index" in example else "cais/mmlu", _texts(options), letter


def _texts(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) < 2:
        raise ConfigError("column choices", f"{value!r:.80} is not a list of choices", "Write two or more strings")
    return [str(text) for text in value]


MATH_CHOICE = RawSet("math_choice", to_row, {"test": Hub("cais/mmlu", "all", "test")})
