import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.gsm8k import score_gsm8k, score_gsm8k_strict


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
    assert score_gsm8k_strict(solution, "18", {}) == strict


def test_a_ground_truth_must_be_a_number() -> None:
    with pytest.raises(UnscoredError, match="is not a number: 'eighteen'"):
        score_gsm8k_strict("#### 18", "eighteen", {})
