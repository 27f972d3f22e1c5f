import pytest

from agent_rl.rewards.scorers.extraction import last_boxed, last_tag, marked_answer


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{3}}", r"\boxed{3}"),
        (r"\fbox{4}", "4"),
        (r"$\boxed 5$", "5"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\{1,2}", r"\{1,2"),
        (r"\boxed{1} but then \boxed{2", "1"),
        ("no box", None),
    ],
)
def test_the_last_complete_box_counts(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{1}, \boxed{2}, \boxed{3}", "1, 2, 3"),
        (r"\boxed{1}. Therefore the answer is \boxed{2}", "2"),
        (r"\boxed{7} \boxed{8}", "7, 8"),
        (r"\boxed{5}. \boxed{5}", "5"),
        (r"\boxed{k = 45} \quad \text{and} \quad \boxed{n = 2}", "k = 45, n = 2"),
        (r"\boxed{2} cats and \boxed{3} dogs", "2, 3"),
        (r"$y_1 = \boxed{x}$ and $y_2 = \boxed{2x}$", "x, 2x"),
        (r"\boxed{2} is wrong, and \boxed{3}", "3"),
    ],
)
def test_boxes_of_one_list_are_joined(text: str, box: str) -> None:
    assert last_boxed(text, joined=True) == box


def test_tags_are_paired_from_the_end() -> None:
    assert last_tag("<answer>a</answer><answer>b</answer>") == "b"
    assert last_tag("</answer><answer>b") is None
    assert last_tag("<final>x</final>", "final") == "x"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 5\nmore", "5"),
        ("The answer is **7**", "7"),
        ("Final answer: $x=3$", "$x=3$"),
        ("#### 12", "12"),
        ("My answer to that", None),
    ],
)
def test_markers_are_found(text: str, answer: str | None) -> None:
    assert marked_answer(text) == answer
