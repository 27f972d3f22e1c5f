import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.gsm8k import score_gsm8k


@pytest.mark.parametrize(
    ("solution", "flexible", "strict"),
    [
        ("6 * 3 = 18\n#### 18", 1, 1),
        ("#### 17 ... wait\n#### 18", 1, 1),
        ("#### $18.00.", 1, 1),
        ("#### 1,8", 0, 0),
        ("The answer is 18.", 1, 0),
        ("\\boxed{18}", 1, 0),
        ("####18", 1, 1),
        ("#### eighteen (18)", 1, 0),
        ("18 #### 17", 0, 0),
        ("", 0, 0),
    ],
)
def test_the_mark_is_demanded_only_by_the_strict_one(solution: str, flexible: int, strict: int) -> None:
    assert score_gsm8k(solution, "18", {}) == flexible
    assert score_gsm8k(solution, "18", {}, reading="strict") == strict


@pytest.mark.parametrize(
    ("solution", "right", "as_answer"),
    [
        ("18", 0, 1),
        ("The answer is 18.", 0, 1),
        ("There are 18 eggs", 0, 1),
        ("16 and 18", 0, 0),
        ("#### 18", 1, 1),
        ("#### 1,018", 0, 0),
        ("\\boxed{18} eggs, 3 of them white", 1, 1),
        ("#### 17 or \\boxed{18}", 1, 1),
        ("\\boxed{17}\n#### 18", 1, 1),
        ("#### -(18)", 0, 0),
        ("#### 18 of 20", 0, 0),
        ("#### 18 or more", 0, 0),
        ("#### 20 != 18", 0, 0),
        ("#### x >= 18", 0, 0),
        ("#### 17 = 18", 0, 0),
        ("#### 3 dozen / 2 = 18", 1, 1),
        ("<think>#### 18</think> done", 0, 0),
        ("<think>#### 18", 0, 0),
        ("<answer>18 eggs</answer> 3", 1, 1),
        ("#### 18" + " " * 50 + "0 no", 0, 0),
    ],
)
def test_only_a_marked_number_counts(solution: str, right: int, as_answer: int) -> None:
    assert score_gsm8k(solution, "18", {}, reading="marked") == right
    assert score_gsm8k(solution, "18", {"answer_marked": True}, reading="marked") == as_answer


def test_a_ground_truth_must_be_a_number() -> None:
    with pytest.raises(UnscoredError, match="is not a number: 'eighteen'"):
        score_gsm8k("#### 18", "eighteen", {}, reading="strict")
