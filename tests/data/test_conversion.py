"""Data sets become files of rows: splits, limits, and nothing when one row is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import gsm8k, read_parquet
from agent_rl.data.conversion import RawSet, run
from agent_rl.data.rows import make_row

EXAMPLES = [{"question": f"{number} + 1?", "answer": f"#### {number + 1}", "book": number // 3} for number in range(60)]


def converted(folder: Path, *arguments: str, data_set: RawSet = gsm8k.GSM8K) -> dict[str, list[dict[str, Any]]]:
    out = folder / "out"
    run(data_set, "About.", [*arguments, "--local_save_dir", str(out)])
    return {path.stem: read_parquet(path) for path in sorted(out.iterdir())}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in EXAMPLES))
    return str(path)


def questions(rows: list[dict[str, Any]]) -> list[str]:
    return [row["extra_info"]["question"] for row in rows]


def test_one_file_is_one_split(tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = converted(tmp_path, "--input", file, "--limit", "5", "--agent_name", "tool_agent", "--tools", "calculator")
    assert questions(rows["train"]) == [each["question"] for each in EXAMPLES[:5]]
    assert [row["extra_info"]["index"] for row in rows["train"]] == [0, 1, 2, 3, 4]
    assert rows["train"][0]["agent_name"] == "tool_agent"
    assert rows["train"][0]["extra_info"]["tool_selection"] == ["calculator"]
    assert capsys.readouterr().out == f"train: 5 rows in {tmp_path / 'out' / 'train.parquet'}\n"


def test_files_have_the_split_that_their_names_say(tmp_path: Path, file: str) -> None:
    (tmp_path / "my_test.jsonl").write_text(json.dumps(EXAMPLES[7]))
    rows = converted(tmp_path, "--input", file, str(tmp_path / "my_test.jsonl"), file)
    assert {split: len(each) for split, each in rows.items()} == {"test": 1, "train": 120}


def test_a_folder_has_its_splits_as_files(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text(json.dumps(EXAMPLES[0]))
    assert converted(tmp_path, "--local_dataset_path", str(tmp_path / "set")).keys() == {"train", "test"}


def test_a_share_of_the_rows_is_the_test_split_and_the_seed_decides_which(tmp_path: Path, file: str) -> None:
    share = ("--input", file, "--test_share", "0.2")
    rows = converted(tmp_path, *share)
    assert 4 <= len(rows["test"]) <= 24
    assert sorted(questions(rows["test"] + rows["train"])) == sorted(each["question"] for each in EXAMPLES)
    assert converted(tmp_path, *share) == rows
    assert questions(converted(tmp_path, *share, "--seed", "1")["test"]) != questions(rows["test"])


def test_rows_of_one_value_stay_in_one_split(tmp_path: Path, file: str) -> None:
    rows = converted(tmp_path, "--input", file, "--split_by", "book", "--test_share", "0.3")
    books = {each["question"]: each["book"] for each in EXAMPLES}
    of_split = {split: {books[question] for question in questions(each)} for split, each in rows.items()}
    assert of_split["train"]
    assert of_split["test"]
    assert not of_split["train"] & of_split["test"]


def test_a_columns_value_may_name_the_split(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps({**EXAMPLES[0], 'part': part})}\n" for part in ("train", "dev", "Test")))
    assert converted(tmp_path, "--input", str(path), "--split_by", "part").keys() == {"train", "validation", "test"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "absent.jsonl"), "error: absent.jsonl: there is no such file"),
        (("--limit", "0"), "expected a number from 1, got 0"),
        (("--test_share", "1"), "expected a share from 0 to below 1, got 1"),
    ],
)
def test_wrong_arguments_end_with_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        converted(tmp_path, *arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_input_and_hub_the_error_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(RawSet("mine", make_row), None, [])
    assert "--input: there is no input" in capsys.readouterr().err


def test_one_bad_row_leaves_the_files_as_they_were(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = converted(tmp_path, "--input", file)
    with open(file, "a") as lines:
        lines.write(json.dumps({"question": "a?", "answer": "none"}))
    with pytest.raises(SystemExit):
        converted(tmp_path, "--input", file)
    assert f"error: {file}, line 61, column answer: no number after '####' in 'none'" in capsys.readouterr().err
    assert read_parquet(tmp_path / "out" / "train.parquet") == rows["train"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.parquet"]


def test_an_interrupt_leaves_the_files_and_is_one_line(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = converted(tmp_path, "--input", file)
    capsys.readouterr()

    def interrupted(example: dict[str, Any], split: str, index: int, **options: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    data_set = RawSet("mine", interrupted)
    with pytest.raises(SystemExit) as end:
        converted(tmp_path, "--input", file, data_set=data_set)
    assert end.value.code == 130
    said = capsys.readouterr()
    assert said == ("", "\ninterrupted: the files are as they were. The same command starts again\n")
    assert {path.stem: read_parquet(path) for path in (tmp_path / "out").iterdir()} == before
