"""GSM8K: the real data set where it is present, and made-up examples for what may go wrong."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from agent_rl.data import check_rows, gsm8k
from agent_rl.data.sources import read_raw
from agent_rl.errors import ConfigError
from tests.data.real import shared

EXAMPLE = {"question": "Half of 2,000?", "answer": "2000/2 = <<2000/2=1000>>1000.\n#### 1,000"}


@pytest.mark.parametrize(("split", "count", "first"), [("train", 7473, "72"), ("test", 1319, "18")])
def test_every_row_of_the_real_data_is_right(split: str, count: int, first: str) -> None:
    examples = [raw.value for raw in read_raw(shared(f"gsm8k/{split}.jsonl"))]
    rows = [gsm8k.to_row(example, split, i) for i, example in enumerate(examples)]
    assert len(rows) == count
    check_rows(rows)
    assert all(re.fullmatch(r"-?\d+", row["reward_model"]["ground_truth"]) for row in rows)
    assert [row["extra_info"]["answer"] for row in rows] == [example["answer"] for example in examples]
    assert rows[0]["reward_model"]["ground_truth"] == first


@pytest.mark.parametrize(
    ("text", "number"), [("#### 72", "72"), ("a #### 1\n#### -1,080 ", "-1080"), ("x####2.50", "2.50")]
)
def test_final_answer(text: str, number: str) -> None:
    assert gsm8k.final_answer(text) == number


@pytest.mark.parametrize("text", ["72", "#### ", "#### seven", ""])
def test_an_answer_without_a_number_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="no number after '####'"):
        gsm8k.final_answer(text)


def test_a_row_holds_the_question_alone_and_the_whole_answer() -> None:
    row = gsm8k.to_row(EXAMPLE, "test", 4, agent_name="tool_agent")
    assert row["prompt"] == [{"role": "user", "content": "Half of 2,000?"}]
    assert row["data_source"] == "openai/gsm8k"
    assert row["agent_name"] == "tool_agent"
    assert row["reward_model"]["ground_truth"] == "1000"
    assert row["extra_info"] == {"split": "test", "index": 4, **EXAMPLE}


@pytest.mark.parametrize(
    ("example", "key"),
    [
        ({"question": "a?"}, "answer"),
        ({"Question": "a?", "answer": "#### 1"}, "question"),
        (EXAMPLE | {"answer": "1"}, "answer"),
    ],
)
def test_a_bad_example_is_named(example: Mapping[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gsm8k.to_row(example, "train", 9)
    assert caught.value.key == f"column {key}"
