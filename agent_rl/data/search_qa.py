"""Converts questions that need search to rows: Natural Questions, TriviaQA, HotpotQA, Search-R1's parquet files.

    {"question": ..., "answer": ["...", ...]}                                            NQ-open
    {"question": ..., "answer": {"value": "...", "aliases": [...]}}                      TriviaQA
    {"question": ..., "answer": "...", "type": "bridge", "supporting_facts": ...}        HotpotQA
    {"question": ..., "golden_answers": [...], "data_source": "nq"}                      Search-R1

The ground truth is the list of accepted answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_rl.data.conversion import Hub, RawSet, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.errors import ConfigError


@makes_row
def to_row(example: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples."""
    answer = value_of(example, "golden_answers", "answer", "answers")
    source = "nq"
    if isinstance(answer, Mapping):
        source = "triviaqa"
        answer = [value_of(answer, "value"), *(answer.get("aliases") or ())]
    elif "supporting_facts" in example or "context" in example:
        source = "hotpotqa"
    answers = [answer] if isinstance(answer, str) else list(answer)
    if not answers or not all(isinstance(text, str) and text.strip() for text in answers):
        raise ConfigError("column answer", f"expected accepted answers, got {answer!r:.80}", "Use non-empty strings")
    question = text_of(example, "question").strip()
    labels = ("level", "type", "question_id")
    return {
        "question": question if question.endswith("?") else f"{question}?",
        "data_source": str(example.get("data_source") or source),
        "ground_truth": list(dict.fromkeys(answers)),
        "ability": "search",
        "extra_info": {name: example[name] for name in labels if example.get(name) is not None},
    }


_NQ = "google-research-datasets/nq_open"
_HUB = {"train": Hub(_NQ), "test": Hub(_NQ, None, "validation")}
SEARCH_QA = RawSet("search_qa", to_row, _HUB)
