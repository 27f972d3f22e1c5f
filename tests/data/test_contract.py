"""The row contract: what is refused, and that the refusal names file, row, column and value."""

from typing import Any

import pytest

from agent_rl.data import check_row, check_rows
from agent_rl.errors import ConfigError
from tests.data.test_rows import row


def changed(path: str, value: Any) -> dict[str, Any]:
    """A good row with one value replaced; path is dotted, and numbers in it are list positions."""
    result: Any = row()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = result
    for part in parents:
        target = target[part]
    target[last] = value
    return dict(result)


@pytest.mark.parametrize(
    ("path", "value", "key", "problem"),
    [
        ("data_source", 3, "data_source", "3"),
        ("data_source", " ", "data_source", "' '"),
        ("ability", 1, "ability", "1"),
        ("prompt", "3 + 4?", "prompt", "'3 + 4?'"),
        ("prompt", [], "prompt", "[]"),
        ("prompt.0", "hello", "prompt[0]", "'hello'"),
        ("prompt.0.role", "usr", "prompt[0].role", "'usr'"),
        ("prompt.0.role", "assistant", "", "last message of the prompt is from 'assistant'"),
        ("prompt.0.content", "", "prompt[0].content", "''"),
        ("prompt.0", {"role": "user", "content": "a", "tool_calls": [1]}, "prompt[0]", "tool_calls"),
        ("reward_model", "7", "reward_model", "'7'"),
        ("reward_model.ground_truth", None, "reward_model", "the row has no ground_truth"),
        ("reward_model.ground_truth", " ", "reward_model.ground_truth", "empty"),
        ("reward_model.ground_truth", float("nan"), "reward_model.ground_truth", "not a number"),
        ("extra_info", [], "extra_info", "[]"),
        ("extra_info.index", None, "extra_info.index", "null"),
        ("extra_info.index", 1.5, "extra_info.index", "1.5"),
        ("extra_info.split", 1, "extra_info.split", "1"),
        ("extra_info.tool_selection", [], "extra_info.tool_selection", "[]"),
        ("extra_info.tool_selection", [None], "extra_info.tool_selection[0]", "null"),
        ("extra_info.tools_kwargs", "search", "extra_info.tools_kwargs", "'search'"),
        ("extra_info.tools_kwargs", {"search": 1}, "extra_info.tools_kwargs.search", "1"),
        ("extra_info.difficulty", "hard", "extra_info.difficulty", "'hard'"),
        ("images", [{"path": "a.png"}], "", "0 <image> for 1 images"),
        ("videos", [1], "videos[0]", "1"),
    ],
)
def test_what_breaks_the_contract_is_named(path: str, value: Any, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_rows([row(), changed(path, value)], source="bad.parquet")
    assert caught.value.key == "bad.parquet, row 1" + f", column {key}" * bool(key)
    assert problem in caught.value.problem
    assert "Did you mean 'user'" in caught.value.remedy if value == "usr" else caught.value.remedy


@pytest.mark.parametrize("column", ["data_source", "prompt", "reward_model", "extra_info"])
def test_a_missing_column_is_named(column: str) -> None:
    bad = row()
    del bad[column]
    with pytest.raises(ConfigError, match=f"row 0, column {column}: the column is missing"):
        check_rows([bad])


def test_rows_of_one_file_may_differ() -> None:
    """What verl could not join as typed tables is packed when it is stored."""
    other = changed("extra_info.tools_kwargs", {"python": {"create_kwargs": {"k": 1}}})
    check_rows([row(0), row("b"), other, changed("reward_model.ground_truth", ["7", "seven"])])


def test_a_reward_model_needs_no_ground_truth() -> None:
    check_row(changed("reward_model", {"style": "model"}), "here")


def test_no_rows_and_no_mapping_are_errors() -> None:
    with pytest.raises(ConfigError, match="there are no rows"):
        check_rows([])
    with pytest.raises(ConfigError, match="row 0: 'x' is not a mapping"):
        check_rows(["x"])
