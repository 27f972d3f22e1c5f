import pytest

from agent_rl.rewards.scorers.tags import tag_share


@pytest.mark.parametrize(
    ("text", "share", "alone"),
    [
        ("<think>a</think>\n<answer>b</answer>", 1.0, 1.0),
        ("so <think>a</think><answer>b</answer>", 1.0, 0.0),
        ("<think>a</think><answer>b", 0.5, 0.0),
        ("<answer>b</answer><think>a</think>", 0.5, 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.5, 0.0),
        ("<think>a</answer>", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("<think>a</think><answer>b</answer>" + " " * 10**6, 0.0, 0.0),
    ],
)
def test_tags_stand_once_closed_and_in_order(text: str, share: float, alone: float) -> None:
    assert tag_share(text, ["think", "answer"]) == share
    assert tag_share(text, ["think", "answer"], alone=True) == alone
