"""Data sets become files of rows: splits, limits, and nothing when one row is wrong."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agent_rl.data import read_parquet, write_parquet
from agent_rl.data.conversion import RawSet
from agent_rl.data.gsm8k import GSM8K
from agent_rl.data.math_choice import MATH_CHOICE
from agent_rl.data.math_dataset import MATH_DATASET
from agent_rl.data.rows import make_row
from agent_rl.errors import ConfigError

EXAMPLES = [{"question": f"{number} + 1?", "answer": f"#### {number + 1}", "book": number // 3} for number in range(60)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in EXAMPLES))
    return str(path)


def questions(rows: list[dict[str, Any]]) -> list[str]:
    return [row["extra_info"]["question"] for row in rows]


def test_one_file_is_one_split(convert: Any, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = convert(GSM8K, "--input", file, "--limit", "5", "--agent_name", "tool_agent", "--tools", "calculator")
    assert questions(rows["train"]) == [each["question"] for each in EXAMPLES[:5]]
    assert [row["extra_info"]["index"] for row in rows["train"]] == [0, 1, 2, 3, 4]
    assert rows["train"][0]["agent_name"] == "tool_agent"
    assert rows["train"][0]["extra_info"]["tool_selection"] == ["calculator"]
    assert capsys.readouterr().out == f"train: 5 rows in {tmp_path / 'out' / 'train.parquet'}\n"


def test_a_table_of_examples_becomes_a_table_of_rows(convert: Any, tmp_path: Path, file: str) -> None:
    rows = convert(GSM8K, "--input", file)["train"]
    table = GSM8K.table(pd.DataFrame(EXAMPLES))
    assert table.to_dict("records") == rows
    picture = make_row(
        prompt="<image>1 + 1?", images=["a.png"], data_source="mine", ground_truth=2, split="train", index=60
    )
    write_parquet([*rows, picture], tmp_path / "rows.parquet")
    write_parquet(pd.DataFrame([*rows, picture]), tmp_path / "table.parquet")
    assert read_parquet(tmp_path / "table.parquet") == read_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"^row 1, column answer: no number after '####' in 'two'"):
        GSM8K.table(pd.DataFrame({"question": ["1 + 1?", "1 + 1?"], "answer": ["#### 2", "two"]}))


def test_a_table_may_have_arrays_and_missing_values(tmp_path: Path) -> None:
    choices = [{"label": ["A", "B"], "text": ["one", "two"]}] * 2
    arc = pd.DataFrame({"question": ["1 + 1?", "2 - 1?"], "choices": choices, "answerKey": ["B", "A"]})
    arc.to_parquet(tmp_path / "arc.parquet")  # pandas reads lists as arrays
    rows = MATH_CHOICE.table(pd.read_parquet(tmp_path / "arc.parquet"))
    assert rows.to_dict("records") == MATH_CHOICE.table(arc).to_dict("records")
    assert [row["ground_truth"] for row in rows["reward_model"]] == ["B", "A"]
    levels = pd.DataFrame({"problem": ["1 + 1?", "2 + 2?"], "answer": ["2", "4"], "level": [3, None]})
    write_parquet(MATH_DATASET.table(levels), tmp_path / "rows.parquet")
    assert [row["extra_info"].get("level") for row in read_parquet(tmp_path / "rows.parquet")] == [3, None]
    with pytest.raises(ConfigError, match=r"^row 1, column answer: the value is None"):
        MATH_DATASET.table(levels.assign(answer=["2", None]))


def test_files_have_the_split_that_their_names_say(convert: Any, tmp_path: Path, file: str) -> None:
    (tmp_path / "my_test.jsonl").write_text(json.dumps(EXAMPLES[7]))
    rows = convert(GSM8K, "--input", file, str(tmp_path / "my_test.jsonl"), file)
    assert {split: len(each) for split, each in rows.items()} == {"test": 1, "train": 120}


def test_a_folder_has_its_splits_as_files(convert: Any, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text(json.dumps(EXAMPLES[0]))
    assert convert(GSM8K, "--local_dataset_path", str(tmp_path / "set")).keys() == {"train", "test"}


def test_a_share_of_the_rows_is_the_test_split_and_the_seed_decides_which(
    convert: Any, tmp_path: Path, file: str
) -> None:
    share = ("--input", file, "--test_share", "0.2")
    rows = convert(GSM8K, *share)
    assert 4 <= len(rows["test"]) <= 24
    assert sorted(questions(rows["test"] + rows["train"])) == sorted(each["question"] for each in EXAMPLES)
    assert convert(GSM8K, *share) == rows
    assert questions(convert(GSM8K, *share, "--seed", "1")["test"]) != questions(rows["test"])


def test_rows_of_one_value_stay_in_one_split(convert: Any, tmp_path: Path, file: str) -> None:
    rows = convert(GSM8K, "--input", file, "--split_by", "book", "--test_share", "0.3")
    books = {each["question"]: each["book"] for each in EXAMPLES}
    of_split = {split: {books[question] for question in questions(each)} for split, each in rows.items()}
    assert of_split["train"]
    assert of_split["test"]
    assert not of_split["train"] & of_split["test"]


def test_a_columns_value_may_name_the_split(convert: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps({**EXAMPLES[0], 'part': part})}\n" for part in ("train", "dev", "Test")))
    assert convert(GSM8K, "--input", str(path), "--split_by", "part").keys() == {"train", "validation", "test"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "absent.jsonl"), "error: absent.jsonl: there is no such file"),
        (("--limit", "0"), "expected a whole number of 1 or more, got 0"),
        (("--limit", "1k"), "expected a whole number of 1 or more, got 1k"),
        (("--test_share", "1"), "expected a share of at least 0 and less than 1, got 1"),
    ],
)
def test_wrong_arguments_end_with_one_message(refusal: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refusal(GSM8K, *arguments)


def test_without_input_and_hub_the_error_says_what_to_name(refusal: Any) -> None:
    assert "--input: there is no input" in refusal(RawSet("mine", make_row))


def test_one_bad_row_leaves_the_files_as_they_were(convert: Any, tmp_path: Path, file: str, refusal: Any) -> None:
    rows = convert(GSM8K, "--input", file)
    with open(file, "a") as lines:
        lines.write(json.dumps({"question": "a?", "answer": "none"}))
    assert f"error: {file}, line 61, column answer: no number after '####' in" in refusal(GSM8K, "--input", file)
    assert read_parquet(tmp_path / "out" / "train.parquet") == rows["train"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.parquet"]


def test_an_interrupt_leaves_the_files_and_is_one_line(
    convert: Any, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = convert(GSM8K, "--input", file)
    capsys.readouterr()

    def interrupted(example: dict[str, Any], split: str, index: int, **options: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    data_set = RawSet("mine", interrupted)
    with pytest.raises(SystemExit) as end:
        convert(data_set, "--input", file)
    assert end.value.code == 130
    said = capsys.readouterr()
    assert said == ("", "\ninterrupted: no files were changed. Run the same command to start again\n")
    assert {path.stem: read_parquet(path) for path in (tmp_path / "out").iterdir()} == before
