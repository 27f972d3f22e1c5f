"""The forms in which mathematics is published; all rows of the real sets are in test_real_sets."""

from typing import Any

import pytest

from agent_rl.data import check_row
from agent_rl.data.math_dataset import boxed_answer, to_row
from agent_rl.errors import ConfigError

DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": "Solve it.\n\nHow much is 2+3?"}],
    "ability": "MATH",
    "reward_model": {"ground_truth": "5", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a-b"},
}
RETOOL = {
    "messages": [
        {
            "role": "user",
            "content": "Use <code>.\n\n*user question:*\n2+3?\n\nRemember to place the final answer last.",
        },
        {"role": "assistant", "content": "<code>\n```python\n2+3\n```\n</code>\n<answer>\n\\boxed{5}\n</answer>"},
    ]
}
FORMS: list[tuple[dict[str, Any], str, str, dict[str, Any]]] = [
    (
        {"problem": "2+3?", "level": "Level 1", "type": "Algebra", "solution": r"It is $\boxed{5}$."},
        "DigitalLearningGmbH/MATH-lighteval",
        "5",
        {"level": "Level 1", "subject": "Algebra", "solution": r"It is $\boxed{5}$."},
    ),
    ({"problem": "2+3?", "solution": "5.", "answer": "5", "unique_id": "a"}, "HuggingFaceH4/MATH-500", "5", {}),
    ({"Problem": "2+3?", "Answer": 5, "ID": "2024-I-1"}, "aime", "5", {}),
    ({"question": "2+3?", "answer": 5.0}, "aime", "5", {}),
    (
        {"Body": "Ann has 2", "Question": "And 3 more?", "Answer": 5.0, "Equation": "( 2.0 + 3.0 )"},
        "ChilleD/SVAMP",
        "5",
        {"equation": "( 2.0 + 3.0 )"},
    ),
    (DAPO, "math_dapo", "5", {"index": "9a-b"}),
    (RETOOL, "JoeYing/ReTool-SFT", "5", {"solution": RETOOL["messages"][1]["content"]}),
]


@pytest.mark.parametrize(("example", "source", "truth", "info"), FORMS)
def test_each_form_becomes_a_row(example: dict[str, Any], source: str, truth: str, info: dict[str, Any]) -> None:
    row = to_row(example, "test", 3, agent_name="react_agent")
    check_row(row, "row")
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (source, truth)
    assert row["extra_info"].items() >= info.items()
    assert to_row(example, "test", 3, data_source="mine")["data_source"] == (source if example is DAPO else "mine")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3} and then \boxed 4.", "4"),
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{1} \text{ or } \boxed{2}", "1, 2"),
        (r"First \boxed{1}. So \boxed{2}.", "2"),
        (r"\boxed{2} and \boxed{2}", "2"),
    ],
)
def test_the_answer_of_a_solution_is_in_its_last_box(solution: str, answer: str) -> None:
    assert boxed_answer(solution) == answer


@pytest.mark.parametrize(
    ("example", "key"),
    [
        ({"problem": "a?", "solution": "5"}, "column solution"),
        ({"problem": "a?", "answer": None}, "column answer"),
        ({"problem": "a?", "answer": " "}, "column answer"),
        ({"solution": r"\boxed{5}"}, "column problem"),
        ({"messages": RETOOL["messages"][:1]}, "column messages"),
    ],
)
def test_what_is_missing_is_named(example: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_row(example, "test", 0)
    assert caught.value.key == key
