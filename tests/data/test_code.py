"""The forms of programs with tests; all of HumanEval's and LeetCode's rows are in test_real_sets."""

import json
from typing import Any

import pytest

from agent_rl.data.code import stub, to_row
from agent_rl.errors import ConfigError

PAIRS = {"inputs": ["1\n"], "outputs": ["2\n"]}
FORMS: list[tuple[dict[str, Any], str, Any]] = [
    (
        {"question": "Add 1.", "input_output": json.dumps(PAIRS), "solutions": '["print(2)"]', "difficulty": "easy"},
        "apps",
        PAIRS,
    ),
    (
        {
            "question": "Add 1.",
            "input_output": PAIRS | {"fn_name": "f"},
            "starter_code": "def f(x):",
            "skill_types": [],
        },
        "taco",
        PAIRS | {"fn_name": "f"},
    ),
    (
        {
            "name": "a",
            "description": "Add 1.",
            "public_tests": {"input": ["1\n"], "output": ["2\n"]},
            "private_tests": {"input": ["3\n"], "output": ["4\n"]},
        },
        "codecontests",
        {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "4\n"]},
    ),
    (
        {
            "question": "Add 1.",
            "test": "from solution import f\n\ndef test_f():\n    assert f(1) == 2",
            "solution": "f",
        },
        "KodCode/KodCode-V1",
        {"pytest": "from solution import f\n\ndef test_f():\n    assert f(1) == 2"},
    ),
    ({"text": "Add 1.", "test_list": ["assert f(1) == 2"], "code": "f"}, "mbpp", ["assert f(1) == 2"]),
]


@pytest.mark.parametrize(("example", "source", "tests"), FORMS)
def test_each_form_becomes_a_row(example: dict[str, Any], source: str, tests: Any) -> None:
    row = to_row(example, "test", 0)
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (source, tests)
    assert "Add 1." in row["prompt"][0]["content"]
    assert example.get("starter_code", "") in row["prompt"][0]["content"]


@pytest.mark.parametrize(
    ("example", "key"),
    [
        ({"question": "a"}, "column question"),
        ({"question": "a", "input_output": "{"}, "column input_output"),
        ({"question": "a", "input_output": "{}"}, "column input_output"),
        ({"description": "a", "public_tests": {"input": [], "output": []}}, "column public_tests"),
        ({"problem_description": "a", "test": "b", "prompt": "c"}, "column entry_point"),
    ],
)
def test_what_cannot_be_read_is_named(example: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_row(example, "test", 0)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("example", "shown", "hidden"),
    [
        (
            {"question": "a", "input_output": {"inputs": [[1], [2], [3]], "outputs": [1, 2, 3], "fn_name": "f"}},
            {"inputs": [[1]], "outputs": [1], "fn_name": "f"},
            {"inputs": [[2], [3]], "outputs": [2, 3], "fn_name": "f"},
        ),
        (
            FORMS[2][0],
            {"inputs": ["1\n"], "outputs": ["2\n"]},
            {"inputs": ["3\n"], "outputs": ["4\n"]},
        ),
        (
            {"text": "a", "test_list": ["assert f(1) == 2", "assert f(2) == 3"], "code": "f"},
            ["assert f(1) == 2"],
            ["assert f(2) == 3"],
        ),
    ],
)
def test_visible_tests_go_to_the_tool_and_the_others_grade(example: dict[str, Any], shown: Any, hidden: Any) -> None:
    row = to_row(example, "train", 0, visible=1)
    assert row["reward_model"]["ground_truth"] == hidden
    assert row["extra_info"]["tools_kwargs"] == {"run_tests": {"create_kwargs": {"tests": shown}}}
    assert "run_tests" in row["prompt"][0]["content"]
    assert "f(2) == 3" not in row["prompt"][0]["content"]


def test_a_row_without_hidden_tests_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 visible tests, 1 tests that can be told apart"):
        to_row(FORMS[4][0], "train", 0, visible=1)


def test_a_stub_has_the_functions_of_the_published_solution() -> None:
    solution = "import math\nclass A:\n    def f(self, x):\n        return x\n"
    row = {"extra_info": {"solution": solution}}
    assert stub(row) == "import math\n\nclass A:\n\n    def f(self, x):\n        return None"
    assert [stub({"extra_info": {"solution": text}}) for text in ("print(1)", "print 1", None)] == ["pass"] * 3
