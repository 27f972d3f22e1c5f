import numpy as np
import pytest

from agent_rl.data import make_row
from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.choice import extract_choice, score_choice


@pytest.mark.parametrize("truth", ["B", 1, "Paris"])
def test_choices_may_be_an_array_as_in_a_parquet_file(truth: str | int) -> None:
    info = {"choices": np.array(["London", "Paris"])}
    assert score_choice("<answer>Paris</answer>", truth, info) == 1.0
    assert score_choice("<answer>London</answer>", truth, info) == 0.0


def test_the_index_of_a_choice_may_come_from_a_row() -> None:
    options = {"data_source": "cais/mmlu", "split": "test", "index": 0}
    for info in ({}, {"choices": ["London", "Paris"]}):
        row = make_row(question="France?", ground_truth=1, extra_info=info, **options)
        truth = row["reward_model"]["ground_truth"]
        assert [score_choice(f"<answer>{letter}</answer>", truth, info) for letter in "AB"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("truth", "choices", "right"),
    [("2", ["1", "2"], "B"), ("1", ["0", "1"], "B"), ("1", ["1", "2"], None), ("5", ["a", "b"], None)],
)
def test_a_number_is_the_index_or_the_text_of_one_choice(truth: str, choices: list[str], right: str | None) -> None:
    if right is not None:
        assert score_choice(f"<answer>({right})</answer>", truth, {"choices": choices}) == 1.0
        return
    with pytest.raises(UnscoredError, match="exactly one choice"):
        score_choice("<answer>(B)</answer>", truth, {"choices": choices})


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("The answer is B", "B"),
        ("The correct answer is (B).", "B"),
        ("Answer: B, because A fails", "B"),
        ("B. The answer is not A", "B"),
        ("The answer is A or B", None),
        ("The cat", None),
    ],
)
def test_a_tag_may_contain_a_sentence(answer: str, choice: str | None) -> None:
    assert extract_choice(f"<answer>{answer}</answer>") == choice
