import pytest

from agent_rl.rewards.scorers.gsm8k import score_gsm8k


@pytest.mark.parametrize("info", [{}, {"answer_marked": True}])
@pytest.mark.parametrize("answer", ["any", "marked"])
@pytest.mark.parametrize(
    ("solution", "truth", "score"),
    [
        (r"\boxed{18}", "18", 1),
        (r"First \boxed{3}, and finally \boxed{18}", "18", 1),
        (r"\boxed{18} or \boxed{20}", "20", 0),
        (r"\boxed{18}, \boxed{20}", "20", 0),
        (r"\boxed{18}, no, \fbox{5}", "18", 0),
        (r"\boxed{18}, no, \boxed 5", "5", 1),
    ],
)
def test_a_box_is_read_as_in_other_answers(info: dict, answer: str, solution: str, truth: str, score: int) -> None:
    assert score_gsm8k(solution, truth, info, answer=answer) == score


@pytest.mark.parametrize(("solution", "score"), [("#### 18", 1), ("####18", 1), ("####  18", 0), ("####\n18", 0)])
def test_a_strict_answer_follows_its_marker(solution: str, score: int) -> None:
    assert score_gsm8k(solution, "18", {}, answer="strict") == score
