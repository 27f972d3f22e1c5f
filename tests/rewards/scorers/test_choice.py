import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.choice import extract_choice, score_choice

# The labelled cases are in tests/rewards/corpus/extraction.jsonl.


def test_the_text_of_a_choice_stands_for_its_letter() -> None:
    choices = {"choices": ["Rome", "Paris", "A cat"]}
    assert score_choice("<answer>paris.</answer>", "B", choices) == 1.0
    assert score_choice("\\boxed{B}", "Paris", choices) == 1.0
    assert score_choice("A cat", "C", choices) == 1.0
    assert score_choice("London", "B", choices) == 0.0


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("the second option", "B"),
        ("The answer is the 3rd choice.", "C"),
        ("<answer>option 4</answer>", "D"),
        ("\\boxed{\\text{the last option}}", "D"),
        ("the first option or the second option", None),
        ("the tenth option", None),
        ("(A) (B) (C)", None),
        ("\\boxed{A}, \\boxed{B}", None),
        ("<think>B</think> (C) rose", "C"),
        ("\u201cB\u201d", "B"),
        ("\\boxed{\u00abB\u00bb}", "B"),
        ("B!", "B"),
        ("The answer is \uff22", "B"),
        ("B-cell", None),
    ],
)
def test_choices_are_counted(text: str, letter: str | None) -> None:
    assert extract_choice(text, ["tulip", "oak", "rose", "fern"]) == letter


def test_two_different_letters_are_no_choice() -> None:
    assert extract_choice("A or B") is None
    assert extract_choice("The answer is A or A") == "A"


@pytest.mark.parametrize("truth", [None, "", "Paris", -1, 26, True, ["A"]])
def test_a_truth_must_be_a_choice(truth: object) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a letter"):
        score_choice("A", truth, {})
