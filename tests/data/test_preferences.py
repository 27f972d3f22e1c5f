"""The forms of preferences: prompts for a reward model, and pairs for a judge."""

from typing import Any

import pytest

from agent_rl.data.preferences import to_row
from agent_rl.errors import ConfigError

TALK = "\n\nHuman: Hi.\n\nAssistant: Hello.\n\nHuman: Bye?\n\nAssistant:"
TURNS = [
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye?"},
]
FORMS: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
    ({"chosen": f"{TALK} Good bye.", "rejected": f"{TALK} No."}, TURNS),
    ({"prompt": TALK, "chosen": "Good bye.", "rejected": "No."}, TURNS),
    ({"prompt": "Bye?", "chosen": "Good bye.", "rejected": "No."}, TURNS[2:]),
    (
        {
            "prompt": "Bye?",
            "chosen": [TURNS[2], {"role": "assistant", "content": "Good bye."}],
            "rejected": [TURNS[2], {"role": "assistant", "content": "No."}],
        },
        TURNS[2:],
    ),
]


@pytest.mark.parametrize(("example", "prompt"), FORMS)
def test_each_form_becomes_a_prompt_for_a_reward_model(example: dict[str, Any], prompt: list[dict[str, str]]) -> None:
    row = to_row(example, "train", 0, data_source="mine")
    assert row["prompt"] == prompt
    assert row["reward_model"] == {"style": "model", "ground_truth": "Good bye."}
    assert (row["extra_info"]["chosen"], row["extra_info"]["rejected"]) == ("Good bye.", "No.")


@pytest.mark.parametrize(("example", "prompt"), FORMS)
def test_a_judge_gets_both_answers_in_an_order_that_the_index_decides(example: dict[str, Any], prompt: Any) -> None:
    rows = [to_row(example, "train", index, data_source="mine", judge=True) for index in range(2)]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["A", "B"]
    text = rows[1]["prompt"][0]["content"]
    assert text.index("No.") < text.index("Good bye.")
    assert "Bye?" in text


def test_dialogues_that_part_earlier_are_cut_there() -> None:
    other = TALK.replace("Hello.", "Go away.")
    row = to_row({"chosen": f"{TALK} Good bye.", "rejected": f"{other} No."}, "train", 0, data_source="mine")
    assert row["prompt"] == TURNS[:1]
    assert (row["extra_info"]["chosen"], row["extra_info"]["rejected"]) == ("Hello.", "Go away.")


def test_ratings_are_kept_and_an_empty_answer_is_no_truth() -> None:
    row = to_row({"prompt": "Bye?", "response": "", "helpfulness": 0}, "train", 0, data_source="mine")
    assert row["reward_model"] == {"style": "model"}
    assert row["extra_info"]["helpfulness"] == 0


def test_judgebench_says_which_is_better() -> None:
    example = {"question": "2+3?", "response_A": "6", "response_B": "5", "label": "B > A"}
    assert to_row(example, "test", 0, data_source="mine")["reward_model"]["ground_truth"] == "B"
    with pytest.raises(ConfigError, match="expected A>B or B>A"):
        to_row(example | {"label": "A=B"}, "test", 0, data_source="mine")


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no dialogue"):
        to_row({"chosen": "Good bye.", "rejected": "No."}, "train", 0, data_source="mine")
    with pytest.raises(ConfigError, match="a judge needs two answers"):
        to_row({"prompt": "Bye?", "response": "a"}, "train", 0, data_source="mine", judge=True)
