r"""Converts preferences to rows for training with a reward model, or to pairs for a judge.

    {"chosen": "\n\nHuman: ...\n\nAssistant: ...", "rejected": ...}                       hh-rlhf
    {"prompt": ..., "response" or "chosen": ..., "rejected": ...}                         full-hh-rlhf, and your own
    {"prompt": ..., "chosen": [message, ...], "rejected": [...], "score_chosen": ...}     UltraFeedback, binarized
    {"prompt": ..., "response": ..., "helpfulness": 4, ...}                               HelpSteer2
    {"prompt": ..., "response_1": ..., "response_2": ..., "preference_strength": -2}      HelpSteer2, preferences
    {"prompt": ..., "chosen": ..., "rejected": ..., "subset": "chat-easy"}                RewardBench
    {"question": ..., "response_A": ..., "response_B": ..., "label": "A>B"}               JudgeBench

Except for JudgeBench, a row contains the conversation before the answer, with `style: model`. The answers are in
`extra_info` (`chosen`, `rejected`), and the chosen answer is the ground truth, which a reward model can ignore. With
`--judge`, and always for JudgeBench, a row asks a judge which of two answers is better, in an order that depends on
`index`. The ground truth of a row for a judge is `A` or `B`, and the answers are in `extra_info.answers`; pairs without
a better answer are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_rl.data.conversion import Hub, RawSet, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.errors import ConfigError

JUDGE = """\
Which of the two answers is better?

# Question
{question}

# Answer A
{a}

# Answer B
{b}

Reply with the letter of the better answer: A or B."""
_TURN = re.compile(r"\n\n(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}
_RATINGS = ("helpfulness", "correctness", "coherence", "complexity", "verbosity", "score_chosen", "score_rejected")
_LABELS = ("subset", "source")
"""Columns whose values group the results of a benchmark."""


@makes_row
def to_row(example: Mapping[str, Any], index: int, data_source: str, judge: bool = False) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples.

    Args:
        example: the columns of the example.
        index: number of the row in its split.
        data_source: data source of the row.
        judge: whether the row asks a judge which answer is better.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    if "response_A" in example:
        answers = text_of(example, "response_A"), text_of(example, "response_B")
        question = text_of(example, "question")
        return _for_judge(question, answers, _label(example), data_source, _labels(example))
    messages, chosen, rejected = _pair(example)
    if judge:
        if rejected is None:
            raise ConfigError("column rejected", "a judge needs two answers", "Remove --judge")
        dialogue = "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)
        question = messages[0]["content"] if len(messages) == 1 else dialogue
        answers, better = ((chosen, rejected), "A") if index % 2 == 0 else ((rejected, chosen), "B")
        return _for_judge(question, answers, better, data_source, _labels(example))
    ratings = {name: example[name] for name in _RATINGS if example.get(name) is not None} | _labels(example)
    return {
        "prompt": messages,
        "data_source": data_source,
        "ground_truth": chosen.strip() or None,
        "style": "model",
        "ability": "alignment",
        "extra_info": {"chosen": chosen, **({"rejected": rejected} if rejected is not None else {}), **ratings},
    }


def _labels(example: Mapping[str, Any]) -> dict[str, Any]:
    labels = {name: example[name] for name in _LABELS if example.get(name) is not None}
    return labels | ({"preference": "tie"} if example.get("preference_strength") == 0 else {})


def _for_judge(
    question: str, answers: tuple[str, str], better: str, data_source: str, labels: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "prompt": JUDGE.format(question=question, a=answers[0], b=answers[1]),
        "question": question,
        "data_source": data_source,
        "ground_truth": better,
        "ability": "judge",
        "extra_info": {"answers": list(answers), **labels},
    }


def _label(example: Mapping[str, Any]) -> str:
    label = text_of(example, "label").replace(" ", "")
    if label not in ("A>B", "B>A"):
        raise ConfigError("column label", f"expected A>B or B>A, got {label!r}", "Remove rows without a winner")
    return label[0]


def _pair(example: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str, str | None]:
    """Return the messages before the answer, the better answer, and the worse answer or None."""
    if "prompt" not in example:
        chosen, rejected = (_turns(text_of(example, name), name) for name in ("chosen", "rejected"))
        turn = next((n for n, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), None)
        if turn is None or chosen[turn]["role"] != "assistant" or rejected[turn]["role"] != "assistant":
            turn = len(chosen) - 1
            return chosen[:turn], chosen[turn]["content"], rejected[-1]["content"]
        return chosen[:turn], chosen[turn]["content"], rejected[turn]["content"]
    prompt = value_of(example, "prompt")
    if isinstance(prompt, str) and _TURN.match(f"\n\n{prompt.strip()}"):
        turns = _turns(f"\n\n{prompt.strip()}\n\nAssistant:", "prompt")
        prompt = [turn for turn in turns if turn["content"]]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if "response_1" in example:
        return messages, *_stronger(example)
    answers = [_answer(value_of(example, "chosen", "response")), _answer(example.get("rejected"))]
    return messages, str(answers[0]), answers[1]


def _stronger(example: Mapping[str, Any]) -> tuple[str, str]:
    """Return the better and the worse of two responses; a positive strength means that the second one is better."""
    strength, answers = value_of(example, "preference_strength"), [text_of(example, f"response_{n}") for n in (1, 2)]
    if not isinstance(strength, int | float):
        raise ConfigError("column preference_strength", f"expected a number, got {strength!r}", "Correct the value")
    return (answers[1], answers[0]) if strength > 0 else (answers[0], answers[1])


def _turns(text: str, column: str) -> list[dict[str, Any]]:
    """Return the messages of a transcript, which ends with a message from the assistant."""
    parts = _TURN.split(text)
    turns = [
        {"role": _ROLES[speaker], "content": content.strip()}
        for speaker, content in zip(parts[1::2], parts[2::2], strict=True)
    ]
    if len(turns) < 2 or turns[-1]["role"] != "assistant":
        raise ConfigError(f"column {column}", f"{text[:60]!r} is not a dialogue", "End it with the assistant's turn")
    return turns


def _answer(value: Any) -> str | None:
    """Return the text of an answer, which may be the last message of a conversation."""
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content")
    return None if value is None else str(value)


def _tie(row: Mapping[str, Any]) -> str:
    is_tie = row["ability"] == "judge" and row["extra_info"].get("preference") == "tie"
    return "because a judge cannot choose between equal answers" if is_tie else ""


def _set(name: str, source: str, **splits: str) -> RawSet:
    hub = {split: Hub(source, None, name) for split, name in splits.items()}
    arguments: dict[str, dict[str, Any]] = {
        "--data_source": {"default": source, "help": "Data source of the rows, default: %(default)s"},
        "--judge": {"action": "store_true", "help": "Make rows that ask a judge which of two answers is better"},
    }
    return RawSet(name, to_row, hub, agent_name="single_turn_agent", arguments=arguments, trial=_tie)


FULL_HH_RLHF = _set("full_hh_rlhf", "Dahoas/full-hh-rlhf", train="train", test="test")
HELPSTEER2 = _set("helpsteer2", "nvidia/HelpSteer2", train="train", test="validation")
ULTRAFEEDBACK = _set("ultrafeedback", "HuggingFaceH4/ultrafeedback_binarized", train="train_prefs", test="test_prefs")
PREFERENCE_PAIRS = _set("preference_pairs", "preference_pairs")
