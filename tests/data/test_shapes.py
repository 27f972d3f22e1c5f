"""The shapes of rows that guides show become rows of the contract, and each change is said."""

from typing import Any

import pytest

from agent_rl.data import as_row, check_row, make_row
from agent_rl.errors import ConfigError

COMMON = {"data_source": "gsm8k", "agent_name": "react_agent"}
USER = [{"role": "user", "content": "6 * 7?"}]

SHAPES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {"prompt": "6 * 7?", "ground_truth": 42},
        {},
        ["a prompt given as text", "ground_truth moved", "given as numbers"],
    ),
    ({"prompts": USER, "ground_truth": "42"}, {}, ["prompts is read as prompt"]),
    ({"messages": [*USER, {"role": "assistant", "content": "42"}]}, {}, ["last turn is read as ground_truth"]),
    (
        {"conversations": [{"from": "human", "value": "6 * 7?"}, {"from": "gpt", "value": "42"}]},
        {"extra_info": {"answer": "42", "index": 5}},
        ["conversations is read as prompt", "ShareGPT", "last turn"],
    ),
    (
        {
            "conversations": [
                {"from": "system", "value": "Be short."},
                {"from": "human", "value": "6 * 7?"},
                {"from": "gpt", "value": "Six sevens are 42."},
            ],
            "reward_model": {"ground_truth": "42"},
        },
        {
            "extra_info": {"answer": "Six sevens are 42.", "index": 5},
            "prompt": [{"role": "system", "content": "Be short."}, *USER],
        },
        ["moved to extra_info.answer"],
    ),
    (
        {"prompt": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "6 * 7?"}], "ground_truth": "42"},
        {"prompt": [{"role": "user", "content": "<image>6 * 7?"}], "images": [{"path": "a.png"}]},
        ["a prompt given as content parts", "moved to the images column"],
    ),
    (
        {"prompt": [{"role": "user", "content": [{"type": "text", "text": "6 * 7?"}]}], "ground_truth": "42"},
        {},
        ["content parts of messages became text"],
    ),
    (
        {"prompt": USER, "reward_model": {"style": "rule", "ground_truth": None, "test_cases": ["assert f(1) == 1"]}},
        {"reward_model": {"style": "rule", "ground_truth": ["assert f(1) == 1"]}},
        ["test_cases are read as ground_truth"],
    ),
    (
        {"prompt": USER, "reward_model": {"ground_truth": None}, "extra_info": {"test_cases": ["a"], "index": 5}},
        {"reward_model": {"ground_truth": ["a"]}, "extra_info": {"test_cases": ["a"], "index": 5}},
        ["test_cases are read as ground_truth"],
    ),
    (
        {"prompt": USER, "ground_truth": "42", "available_tools": ["python", {"function": {"name": "search"}}]},
        {"extra_info": {"index": 5, "tool_selection": ["python", "search"]}},
        ["available_tools is read as extra_info.tool_selection"],
    ),
    (
        {"prompt": USER, "ground_truth": "42", "tool_config": {"search": {"k": 3}}, "tool_format": "hermes"},
        {
            "extra_info": {
                "index": 5,
                "tools_kwargs": {"search": {"create_kwargs": {"k": 3}}},
                "need_tools_kwargs": True,
            }
        },
        ["tool_config is read as", "multi_turn.format=hermes"],
    ),
    (
        {"prompt": USER, "ground_truth": "42", "tool_config": "tools.yaml", "index": 5, "split": "test"},
        {"extra_info": {"index": 5, "split": "test"}},
        ["multi_turn.tool_config_path=tools.yaml", "index moved", "split moved"],
    ),
]


@pytest.mark.parametrize(("raw", "expected", "said"), SHAPES)
def test_a_shape_becomes_a_row_and_the_changes_are_said(
    raw: dict[str, Any], expected: dict[str, Any], said: list[str]
) -> None:
    row, changes = as_row(COMMON | raw, number=5)
    check_row(row, "row")
    base = {"prompt": USER, "reward_model": {"ground_truth": "42"}}
    wanted = COMMON | base | expected
    assert {name: row[name] for name in wanted} == wanted
    assert row.keys() <= {*wanted, "extra_info", "images"}
    for text in said:
        assert any(text in change for change in changes), changes


def test_a_row_of_the_contract_is_unchanged() -> None:
    row = make_row(question="6 * 7?", data_source="gsm8k", ground_truth="42", split="train", index=3)
    assert as_row(row) == (row, [])


def test_gaps_of_a_typed_table_are_left_out_of_tools_kwargs() -> None:
    info = {"index": 1, "tools_kwargs": {"search": None, "python": {"create_kwargs": {"k": 1}}}}
    row, _ = as_row(COMMON | {"prompt": USER, "reward_model": {"ground_truth": "42"}, "extra_info": info})
    assert row["extra_info"]["tools_kwargs"] == {"python": {"create_kwargs": {"k": 1}}}


@pytest.mark.parametrize("column", ["extra_info", "reward_model"])
def test_a_column_that_is_no_mapping_is_left_for_the_check(column: str) -> None:
    raw = {"messages": [*USER, {"role": "assistant", "content": "42"}], "available_tools": ["search"]}
    raw |= {"reward_model": {"ground_truth": "42"}, "extra_info": {"index": 1}, column: "text"}
    row, _ = as_row(COMMON | raw)
    assert row[column] == "text"
    with pytest.raises(ConfigError, match=f"column {column}: expected a mapping, got 'text'"):
        check_row(row, "row 0")


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"prompt": 3}, "prompt"),
        ({"prompt": [{"type": "audio", "audio": "a.wav"}]}, "prompt"),
        ({"prompt": USER, "available_tools": "search"}, "available_tools"),
        ({"prompt": USER, "available_tools": [{"function": {}}]}, "available_tools"),
    ],
)
def test_what_has_no_known_shape_is_named(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"rows\.jsonl, line 3, column {key}: "):
        as_row(COMMON | raw, place="rows.jsonl, line 3")
