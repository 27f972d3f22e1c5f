from typing import Any

import numpy as np
import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.qa import (
    extract_answer,
    normalize_answer,
    read_targets,
    score_qa_em,
    score_qa_f1,
    score_qa_substring,
)


def test_normalisation_is_that_of_squad() -> None:
    assert normalize_answer("  The U.S.   Open,\nan Event ") == "us open event"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("<answer>a</answer> then <answer> b </answer>", "b"),
        ("<answer>open <answer>inner</answer>", "inner"),
        ("<answer>never closed", ""),
        ("so \\boxed{Paris}", "Paris"),
        ("Paris", "Paris"),
        ("Paris " * 1000, ""),
        ("<answer>" + "x" * 2001 + "</answer>", ""),
    ],
)
def test_the_answer_is_found(solution: str, answer: str) -> None:
    assert extract_answer(solution) == answer


@pytest.mark.parametrize(
    "truth",
    [
        "Paris",
        ["Rome", "Paris"],
        {"target": ["Paris"]},
        {"target": "Paris"},
        {"target": np.array(["Paris"], dtype=object)},
    ],
)
def test_every_form_of_ground_truth_is_read(truth: Any) -> None:
    assert score_qa_em("the paris", truth, {}) == 1.0
    assert score_qa_em("london", truth, {}) == 0.0


def test_numbers_are_targets_too() -> None:
    assert read_targets([1990, 2.5]) == ["1990", "2.5"]


@pytest.mark.parametrize("truth", [None, [], {"target": []}, {"goal": "x"}, [["x"]], "", "  "])
def test_without_a_target_it_is_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not"):
        score_qa_em("", truth, {})


def test_f1_counts_words() -> None:
    assert score_qa_f1("the city of Paris", ["Paris"], {}) == pytest.approx(2 / 4)
    assert score_qa_f1("paris paris", "Paris", {}) == pytest.approx(2 / 3)
    assert score_qa_f1("yes it is", "yes", {}) == 0.0
    assert score_qa_f1("", "yes", {}) == 0.0


def test_a_substring_is_made_of_whole_words() -> None:
    assert score_qa_substring("It was Jean Paul Marat.", "Paul Marat", {}) == 1.0
    assert score_qa_substring("Parisian", "Paris", {}) == 0.0
    assert score_qa_substring("", "Paris", {}) == 0.0
