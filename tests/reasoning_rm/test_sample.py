"""Samples and rows: both ways, and of every form of preferences that the converters read."""

from typing import Any

import pytest

from agent_rl.data import check_row
from agent_rl.data.preferences import to_row
from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm import DataSample

SAMPLES = [
    DataSample(query="6 * 7?", answers=["42"], scores=[3]),
    DataSample(query="b", context="user: a", answers=["x", "y"], preference="tie", metadata={"subset": "chat"}),
    DataSample(query="c", answers=["x", "y", "z"], scores=[1, 0.5, 2], criteria={"clear": "It is clear."}),
    DataSample(query="d", answers=[""]),
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_a_row_and_back(sample: DataSample) -> None:
    row = sample.to_row("mine", "train", 3)
    check_row(row, "here")
    assert DataSample.from_row(row) == sample


@pytest.mark.parametrize(("score", "truth"), [(3, "3"), (0.5, "0.5"), (3.1415926, "3.1415926"), (1234567, "1234567")])
def test_the_ground_truth_is_the_exact_score(score: float, truth: str) -> None:
    row = DataSample(query="q", answers=["a"], scores=[score]).to_row("mine", "train", 3)
    assert row["reward_model"]["ground_truth"] == truth


FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"prompt": "q", "response": "a", "helpfulness": 3, "verbosity": 1}, {"answers": ["a"], "scores": [3.0]}),
    ({"prompt": "q", "chosen": "a", "rejected": "b", "subset": "hep"}, {"answers": ["a", "b"], "preference": "A"}),
    (
        {"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 8.0, "score_rejected": 2.5},
        {"answers": ["a", "b"], "preference": "A", "scores": [8.0, 2.5]},
    ),
    (
        {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": 2},
        {"answers": ["b", "a"], "preference": "A"},
    ),
    (
        {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": 0},
        {"answers": ["a", "b"], "preference": "tie"},
    ),
    (
        {"question": "q", "response_A": "a", "response_B": "b", "label": "B>A", "source": "livebench"},
        {"answers": ["a", "b"], "preference": "B"},
    ),
]


@pytest.mark.parametrize(("example", "expected"), FORMS)
def test_converters_read_every_form(example: dict[str, Any], expected: dict[str, Any]) -> None:
    sample = DataSample.from_row(to_row(example, "train", 0, data_source="mine"))
    assert sample.query == "q"
    assert {name: getattr(sample, name) for name in expected} == expected
    assert sample.metadata == {name: example[name] for name in ("verbosity", "subset", "source") if name in example}


def test_turns_before_the_question_are_its_context() -> None:
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]
    row = to_row({"prompt": [*turns, {"role": "user", "content": "q"}], "chosen": "a"}, "train", 0, data_source="mine")
    assert DataSample.from_row(row).context == "user: Hi.\n\nassistant: Yes?"


def test_what_is_no_sample_names_its_row() -> None:
    with pytest.raises(ConfigError, match=r"mine, train row 4, extra_info: the row has no answers"):
        DataSample.from_row({"data_source": "mine", "extra_info": {"index": 4, "split": "train"}})
    with pytest.raises(ConfigError, match="one score per answer, got 2 for 1"):
        DataSample.from_row({"extra_info": {"question": "q", "sample": {"answers": ["a"], "scores": [1, 2]}}})
    with pytest.raises(ConfigError, match="preference_strength: expected a number"):
        to_row(
            {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": "-"}, "t", 0, data_source="m"
        )
