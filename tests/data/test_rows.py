"""The row contract: what is built, what is refused and how the refusal reads, and the way through parquet."""

import copy

import pytest

from agent_rl.data import check_parquet, check_rows, make_row, read_parquet, write_parquet
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Message, ToolCall

BASE = {"data_source": "shop/sums", "ground_truth": "7", "split": "train"}


def row(index=0, **changes):
    return make_row(**{"question": "3 + 4?", "index": index, **BASE, **changes})


def changed(path, value):
    """A good row with one value replaced; path is dotted, and numbers in it are list positions."""
    result = row()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = result
    for part in parents:
        target = target[part]
    target[last] = value
    return result


def test_a_question_becomes_one_user_message():
    assert row(5, extra_info={"answer": "3+4 #### 7"}) == {
        "data_source": "shop/sums",
        "agent_name": "react_agent",
        "prompt": [{"role": "user", "content": "3 + 4?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "7"},
        "extra_info": {"split": "train", "index": 5, "question": "3 + 4?", "answer": "3+4 #### 7"},
    }


def test_a_prompt_of_messages_keeps_its_order_and_names_its_question():
    prompt = [Message("system", "Be short."), {"role": "user", "content": "3 + 4?", "tool_calls": None}]
    built = make_row(prompt=prompt, index="a-1", **BASE)
    assert built["prompt"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "3 + 4?"}]
    assert built["extra_info"]["question"] == "3 + 4?"
    assert make_row(prompt=prompt, question="the sum", index=0, **BASE)["extra_info"]["question"] == "the sum"


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (7.5, "7.5"), ("seven", "seven")])
def test_ground_truth_is_stored_as_text(value, text):
    assert row(ground_truth=value)["reward_model"]["ground_truth"] == text


def test_tool_arguments_leave_empty_mappings_out_and_keep_nulls():
    kwargs = {"search": {"create_kwargs": {"index": "wiki", "filter": None}}, "calculator": {"create_kwargs": {}}}
    info = row(tools_kwargs=kwargs, tool_selection=("search",))["extra_info"]
    assert info["tools_kwargs"] == {"search": {"create_kwargs": {"filter": None, "index": "wiki"}}}
    assert info["need_tools_kwargs"] is True
    assert info["tool_selection"] == ["search"]
    assert "tools_kwargs" not in row(tools_kwargs={"calculator": {}})["extra_info"]


@pytest.mark.parametrize(
    ("arguments", "key", "problem"),
    [
        ({"question": None}, "prompt", "neither prompt nor question"),
        ({"question": " "}, "prompt[0].content", "' '"),
        ({"prompt": []}, "prompt", "[]"),
        ({"prompt": ["hello"]}, "prompt[0]", "'hello' is not a message"),
        ({"prompt": [Message("assistant", "x", [ToolCall("f")])]}, "prompt[0]", "tool_calls"),
        ({"ground_truth": None}, "reward_model.ground_truth", "None"),
        ({"ground_truth": ["7"]}, "reward_model.ground_truth", "['7'] (list)"),
        ({"extra_info": {"index": 3}}, "extra_info.index", "reserved"),
        ({"tool_selection": "search"}, "extra_info.tool_selection", "'search'"),
        ({"tools_kwargs": [1]}, "extra_info.tools_kwargs", "[1] (list)"),
    ],
)
def test_make_row_refuses_with_row_column_and_value(arguments, key, problem):
    with pytest.raises(ConfigError) as caught:
        row(12, **arguments)
    assert caught.value.key == f"shop/sums, train row 12, column {key}"
    assert problem in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("path", "value", "key", "problem"),
    [
        ("data_source", 3, "data_source", "3 (int)"),
        ("agent_name", None, "agent_name", "None"),
        ("ability", 1, "ability", "1 (int)"),
        ("prompt", "3 + 4?", "prompt", "'3 + 4?'"),
        ("prompt", [], "prompt", "[]"),
        ("prompt.0", "hello", "prompt[0]", "'hello'"),
        ("prompt.0.role", "usr", "prompt[0].role", "'usr'"),
        ("prompt.0.role", "assistant", "prompt[0].role", "last message is from 'assistant'"),
        ("prompt.0.content", "", "prompt[0].content", "''"),
        ("reward_model", "7", "reward_model", "'7'"),
        ("reward_model.ground_truth", None, "reward_model.ground_truth", "None"),
        ("reward_model.ground_truth", 7, "reward_model.ground_truth", "7 (int)"),
        ("extra_info", [], "extra_info", "[]"),
        ("extra_info.index", None, "extra_info.index", "None"),
        ("extra_info.index", True, "extra_info.index", "True"),
        ("extra_info.split", 1, "extra_info.split", "1 (int)"),
        ("extra_info.tool_selection", [], "extra_info.tool_selection", "[]"),
        ("extra_info.tool_selection", [None], "extra_info.tool_selection[0]", "None"),
        ("extra_info.tools_kwargs", "search", "extra_info.tools_kwargs", "'search'"),
        ("extra_info.tools_kwargs", {"search": None}, "extra_info.tools_kwargs.search", "None"),
        (
            "extra_info.tools_kwargs",
            {"search": {"create_kwargs": {}}},
            "extra_info.tools_kwargs.search.create_kwargs",
            "",
        ),
    ],
)
def test_check_rows_names_source_row_column_and_value(path, value, key, problem):
    with pytest.raises(ConfigError) as caught:
        check_rows([row(), changed(path, value)], source="bad.parquet")
    assert caught.value.key == f"bad.parquet, row 1, column {key}"
    assert problem in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize("column", ["data_source", "agent_name", "prompt", "reward_model", "extra_info"])
def test_a_missing_column_is_named(column):
    bad = row()
    del bad[column]
    with pytest.raises(ConfigError, match=f"row 0, column {column}: the column is missing"):
        check_rows([bad])


def test_an_unknown_role_gets_the_nearest_one_as_remedy():
    with pytest.raises(ConfigError, match="Did you mean 'user'"):
        check_rows([changed("prompt.0.role", "usr")])


def test_rows_of_one_file_must_agree():
    with pytest.raises(ConfigError, match=r"row 1, column extra_info.index: 'b' is str, but row 0 has 0 \(int\)"):
        check_rows([row(0), row("b")])
    with pytest.raises(ConfigError, match="row 1, column note: not all rows"):
        check_rows([row(0), row(1) | {"note": "x"}])
    with pytest.raises(ConfigError, match="row 1, column ability: not all rows"):
        check_rows([row(0), {key: value for key, value in row(1).items() if key != "ability"}])
    one, other = ({name: {"create_kwargs": {"k": 1}}} for name in ("search", "python"))
    for second in (row(1), row(1, tools_kwargs=other)):
        with pytest.raises(ConfigError, match=r"row 1, column extra_info.tools_kwargs: the keys"):
            check_rows([row(0, tools_kwargs=one), second])


def test_no_rows_and_no_mapping_are_errors():
    with pytest.raises(ConfigError, match="there are no rows"):
        check_rows([])
    with pytest.raises(ConfigError, match="row 0: 'x' is not a mapping"):
        check_rows(["x"])


def test_parquet_gives_back_what_was_written(tmp_path):
    kwargs = {"search": {"create_kwargs": {"index": "wiki", "filter": None}}}
    rows = [row(i, tools_kwargs=kwargs, tool_selection=["search"], extra_info={"answer": "7"}) for i in range(3)]
    path = tmp_path / "new" / "split=train" / "rows.parquet"
    before = copy.deepcopy(rows)
    write_parquet(rows, path)
    assert read_parquet(path) == rows == before
    check_parquet(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.parquet"]


def test_the_schema_does_not_depend_on_the_values_or_their_order(tmp_path):
    import pyarrow.parquet as pq

    write_parquet([row(0, extra_info={"level": 1, "answer": "7"})], tmp_path / "a.parquet")
    write_parquet([row(i, extra_info={"answer": "9", "level": i}) for i in range(2)], tmp_path / "b.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").equals(pq.read_schema(tmp_path / "b.parquet"))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.parquet"
    write_parquet([row(0)], path)
    with pytest.raises(
        ConfigError, match=r"rows.parquet, row 2, column extra_info: .*has another type than the rows before"
    ):
        write_parquet([row(i, extra_info={"level": level}) for i, level in enumerate((1, 2, "hard", 4))], path)
    with pytest.raises(ConfigError, match="Leave empty mappings out"):
        write_parquet([row(0, extra_info={"notes": {}})], path)
    with pytest.raises(ConfigError, match="there are no rows"):
        write_parquet([], path)
    assert read_parquet(path) == [row(0)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]
    with pytest.raises(ConfigError, match=r"rows\.parquet/x: it cannot be written: "):
        write_parquet([row(0)], path / "x")


def test_check_parquet_finds_what_another_writer_left(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    kwargs = [{"search": {"create_kwargs": {"k": 1}}}, {"python": {"create_kwargs": {"k": 1}}}]
    rows = [row(i, tools_kwargs=each) for i, each in enumerate(kwargs)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mixed.parquet")
    with pytest.raises(ConfigError, match=r"mixed.parquet, row 0, column extra_info.tools_kwargs.python: .*None"):
        check_parquet(tmp_path / "mixed.parquet")
    pq.write_table(pa.table({"question": ["3 + 4?"]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"other.parquet, row 0, column data_source: the column is missing"):
        check_parquet(tmp_path / "other.parquet")


def test_a_file_that_is_absent_or_not_parquet_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.parquet: there is no such file"):
        check_parquet(tmp_path / "absent.parquet")
    (tmp_path / "text.parquet").write_text("not parquet at all")
    with pytest.raises(ConfigError, match=r"text.parquet: not a parquet file"):
        check_parquet(tmp_path / "text.parquet")
