"""A data set of the user's own becomes rows by a mapping, on the command line or in YAML."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.from_file import FROM_FILE

ROW = {"q": "Half of 8?", "a": 4, "name": "h-8", "level": "easy", "index": 9}


@pytest.fixture
def one(tmp_path: Path, convert: Any) -> Any:
    """Converts one row."""

    def converted(row: dict[str, Any], *arguments: str) -> dict[str, Any]:
        (tmp_path / "rows.jsonl").write_text(json.dumps(row))
        (found,) = convert(FROM_FILE, "--input", tmp_path / "rows.jsonl", *arguments)["test"]
        return found

    return converted


def test_columns_become_prompt_answer_and_name_and_the_rest_is_kept(one: Any, tmp_path: Path) -> None:
    row = one(ROW, "--prompt", "q", "--answer", "a", "--id", "name", "--data_source", "gsm8k")
    assert row["prompt"] == [{"role": "user", "content": "Half of 8?"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "4"}
    assert row["extra_info"] == {"split": "test", "index": "h-8", "question": "Half of 8?", "level": "easy"}
    assert (row["data_source"], row["agent_name"], row["ability"]) == ("gsm8k", "react_agent", "general")


def test_a_template_sees_all_columns(one: Any, tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_text("{{ q }} ({{ level }})")
    row = one(ROW, "--template", str(tmp_path / "t.j2"), "--answer", "a", "--system", "Be short.")
    assert row["prompt"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Half of 8? (easy)"},
    ]


def test_a_mapping_in_yaml_and_options_that_win_over_it(one: Any, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("prompt: q\nanswer: a\ndata_source: one\nability: math\n")
    row = one(ROW, "--mapping", str(tmp_path / "m.yaml"), "--data_source", "two")
    assert (row["data_source"], row["ability"]) == ("two", "math")


def test_images_and_a_reward_model_without_answers(one: Any, tmp_path: Path) -> None:
    row = {"q": "<image>What is it?", "picture": "a.png"}
    found = one(row, "--prompt", "q", "--images", "picture", "--style", "model")
    assert found["images"] == [{"bytes": None, "path": "a.png"}]
    assert found["reward_model"] == {"style": "model"}


def test_rows_in_shapes_of_guides_need_no_mapping(one: Any, tmp_path: Path) -> None:
    conversation = [{"from": "human", "value": "Half of 8?"}, {"from": "gpt", "value": "4"}]
    row = one({"id": 7, "conversations": conversation}, "--data_source", "gsm8k")
    assert row["prompt"] == [{"role": "user", "content": "Half of 8?"}]
    assert row["reward_model"] == {"ground_truth": "4"}
    assert row["extra_info"] == {"split": "test", "index": 0, "answer": "4", "id": 7}


def test_options_take_precedence_over_a_row_in_the_shape_of_a_guide(one: Any) -> None:
    turns = [{"from": "human", "value": "Half of 8?"}, {"from": "gpt", "value": "Let me see. It is four."}]
    row = {"conversations": turns, "label": 4, "data_source": "theirs", "ability": "chat"}
    found = one(row, "--answer", "label", "--data_source", "gsm8k", "--ability", "math", "--style", "model")
    assert (found["data_source"], found["ability"]) == ("gsm8k", "math")
    assert found["reward_model"] == {"style": "model", "ground_truth": "4"}
    assert found["extra_info"]["answer"] == "Let me see. It is four."
    known = {"prompt": "Half of 8?", "reward_model": {"style": "rule", "ground_truth": "5"}, "label": "4"}
    assert one(known, "--answer", "label", "--style", "model")["reward_model"] == found["reward_model"]
    without = one({"prompt": "Write a poem."}, "--style", "model")
    assert without["reward_model"] == {"style": "model"}


def test_an_optional_answer_may_be_empty_in_a_csv_file(tmp_path: Path, convert: Any) -> None:
    (tmp_path / "rows.csv").write_text("q,a\nHalf of 8?,4\nWrite a poem.,\n")
    arguments = ("--input", tmp_path / "rows.csv", "--prompt", "q", "--answer", "a", "--style", "model")
    rows = convert(FROM_FILE, *arguments, "--test_share", "0")["train"]
    assert [row["reward_model"].get("ground_truth") for row in rows] == ["4", None]


def test_the_split_of_a_row_is_that_of_its_file(one: Any) -> None:
    row = {"prompt": "Half of 8?", "ground_truth": 4, "extra_info": {"split": "train", "index": 3}}
    assert one(row)["extra_info"] == {"split": "test", "index": 3}


def test_a_column_of_the_contract_with_text_is_named(tmp_path: Path, refusal: Any) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "Half of 8?", "ground_truth": 4, "extra_info": "easy"}))
    assert "column extra_info: expected a mapping, got 'easy'" in refusal(FROM_FILE, "--input", tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", "question"), "rows.jsonl, line 1, column question: there is no column question. It has q, a"),
        (("--prompt", "q"), "column reward_model: the row has no ground_truth"),
        ((), "line 1, column prompt: the file has only the columns"),
        (("--system", "Be short."), "--system: it has no effect without --prompt or --template"),
        (("--template", "absent.j2"), "--template: absent.j2 cannot be read"),
        (("--mapping", "absent.yaml"), "absent.yaml"),
        (("--mapping", "{folder}/bad.yaml"), "bad.yaml:2: promt: unknown key"),
        (("--mapping", "{folder}/list.yaml"), "list.yaml is not a mapping"),
        (("--template", "{folder}/bad.j2", "--answer", "a"), "bad.j2:2: "),
        (("--template", "{folder}/other.j2", "--answer", "a"), "'hint' is undefined. The columns are q, a"),
    ],
)
def test_a_wrong_mapping_is_named(tmp_path: Path, refusal: Any, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "bad.yaml").write_text("answer: a\npromt: q\n")
    (tmp_path / "list.yaml").write_text("- prompt\n")
    (tmp_path / "bad.j2").write_text("a\n{{ q\n")
    (tmp_path / "other.j2").write_text("{{ q }} {{ hint }}")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    words = [each.format(folder=tmp_path) for each in arguments]
    assert message in refusal(FROM_FILE, "--input", tmp_path / "rows.jsonl", *words)
