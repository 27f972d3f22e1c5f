"""The forms of questions with choices."""

from typing import Any

import pytest

from agent_rl.data.math_choice import to_row
from agent_rl.errors import ConfigError

FORMS: list[tuple[dict[str, Any], str]] = [
    ({"Problem": "Half of 4?", "options": "a ) 1 , b ) 2 , c ) 1,000", "correct": "b"}, "allenai/math_qa"),
    ({"problem": "Half of 4?", "options": "['a ) 1', 'b ) 2', 'c ) 1,000']", "correct": "b"}, "allenai/math_qa"),
    ({"question": "Half of 4?", "choices": ["1", "2", "1,000"], "answer": 1, "subject": "s"}, "cais/mmlu"),
    (
        {"question": "Half of 4?", "options": ["1", "2", "1,000"], "answer": "B", "answer_index": 1},
        "TIGER-Lab/MMLU-Pro",
    ),
    (
        {
            "question": "Half of 4?",
            "choices": {"text": ["1", "2", "1,000"], "label": ["1", "2", "3"]},
            "answerKey": "2",
        },
        "allenai/ai2_arc",
    ),
]


@pytest.mark.parametrize(("example", "source"), FORMS)
def test_each_form_becomes_a_row(example: dict[str, Any], source: str) -> None:
    row = to_row(example, "test", 0)
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (source, "B")
    assert row["extra_info"]["choices"] == ["1", "2", "1,000"]
    assert "\nA. 1\nB. 2\nC. 1,000\n" in row["prompt"][0]["content"]
    assert row["extra_info"]["question"] == "Half of 4?"


@pytest.mark.parametrize(
    ("example", "key"),
    [
        ({"question": "a?", "choices": ["1", "2"], "answer": 2}, "column answer"),
        ({"question": "a?", "choices": ["1"], "answer": 0}, "column choices"),
        ({"question": "a?", "options": "1, 2 or 3", "correct": "a"}, "column options"),
        ({"question": "a?", "answer": 0}, "column choices"),
        ({"question": "a?", "choices": {"text": ["1", "2"], "label": ["A", "B"]}, "answerKey": "E"}, "column answer"),
    ],
)
def test_what_cannot_be_used_is_named(example: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_row(example, "test", 0)
    assert caught.value.key == key
