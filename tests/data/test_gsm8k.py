"""GSM8K: the real data set where it is present, and made-up examples for what may go wrong."""

import json
import re
from pathlib import Path

import pytest

from agent_rl.data import check_rows, gsm8k, write_parquet
from agent_rl.errors import ConfigError

GSM8K = Path(__file__).parents[2].parent / "shared/data" / "gsm8k"
EXAMPLE = {"question": "Half of 2,000?", "answer": "2000/2 = <<2000/2=1000>>1000.\n#### 1,000"}


def write_jsonl(path, examples):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"the GSM8K files are not in {GSM8K}")
def test_every_row_of_the_real_data_is_right():
    examples = gsm8k.load_examples(GSM8K)
    assert {split: len(rows) for split, rows in examples.items()} == {"train": 7473, "test": 1319}
    for split, split_examples in examples.items():
        rows = [gsm8k.to_row(example, split, i) for i, example in enumerate(split_examples)]
        check_rows(rows)
        assert all(re.fullmatch(r"-?\d+", row["reward_model"]["ground_truth"]) for row in rows)
        assert all(
            row["extra_info"]["answer"] == example["answer"] for row, example in zip(rows, split_examples, strict=True)
        )
    assert rows[0]["reward_model"]["ground_truth"] == "18"


@pytest.mark.parametrize(
    ("text", "number"), [("#### 72", "72"), ("a #### 1\n#### -1,080 ", "-1080"), ("x####2.50", "2.50")]
)
def test_final_answer(text, number):
    assert gsm8k.final_answer(text) == number


@pytest.mark.parametrize("text", ["72", "#### ", "#### seven", ""])
def test_an_answer_without_a_number_is_an_error(text):
    with pytest.raises(ConfigError, match="no number after '####'"):
        gsm8k.final_answer(text)


def test_a_row_holds_the_question_alone_and_the_whole_answer():
    row = gsm8k.to_row(EXAMPLE, "test", 4, agent_name="tool_agent")
    assert row["prompt"] == [{"role": "user", "content": "Half of 2,000?"}]
    assert row["data_source"] == "openai/gsm8k"
    assert row["agent_name"] == "tool_agent"
    assert row["reward_model"]["ground_truth"] == "1000"
    assert row["extra_info"] == {"split": "test", "index": 4, **EXAMPLE}


@pytest.mark.parametrize(
    ("example", "key"),
    [
        ({"question": "a?"}, "answer"),
        ({"Question": "a?", "answer": "#### 1"}, "question"),
        (EXAMPLE | {"answer": "1"}, "answer"),
    ],
)
def test_a_bad_example_is_named(example, key):
    with pytest.raises(ConfigError) as caught:
        gsm8k.to_row(example, "train", 9)
    assert caught.value.key == f"openai/gsm8k, train row 9, {key}"


def test_folders_and_single_files_are_read(tmp_path):
    write_jsonl(tmp_path / "plain/train.jsonl", [EXAMPLE, EXAMPLE])
    write_jsonl(tmp_path / "plain/test.jsonl", [EXAMPLE])
    write_jsonl(tmp_path / "plain/train_socratic.jsonl", [EXAMPLE])
    write_jsonl(tmp_path / "some.jsonl", [EXAMPLE])
    assert gsm8k.load_examples(tmp_path / "plain") == {"train": [EXAMPLE, EXAMPLE], "test": [EXAMPLE]}
    assert gsm8k.load_examples(tmp_path / "plain/test.jsonl") == {"test": [EXAMPLE]}
    assert gsm8k.load_examples(str(tmp_path / "some.jsonl")) == {"train": [EXAMPLE]}


def test_a_download_of_the_hubs_repository_is_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "main").mkdir()
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        pq.write_table(pa.Table.from_pylist([EXAMPLE]), tmp_path / "main" / f"{name}.parquet")
    assert gsm8k.load_examples(tmp_path) == {"train": [EXAMPLE, EXAMPLE], "test": [EXAMPLE]}


def test_a_path_without_the_data_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no train.jsonl or train.parquet"):
        gsm8k.load_examples(tmp_path)
    for name in ("absent.jsonl", "absent.parquet", "absent"):
        with pytest.raises(ConfigError, match="there is no such"):
            gsm8k.load_examples(tmp_path / name)
    write_jsonl(tmp_path / "train.jsonl", [EXAMPLE])
    write_parquet([gsm8k.to_row(EXAMPLE, "train", 0)], tmp_path / "train.parquet")
    with pytest.raises(ConfigError, match=r"train.jsonl, train.parquet"):
        gsm8k.load_examples(tmp_path)


@pytest.mark.parametrize("line", ["{", "3", '"text"'])
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(EXAMPLE)}\n{line}\n")
    with pytest.raises(ConfigError, match=r"train.jsonl, line 2: not a JSON object"):
        gsm8k.load_examples(tmp_path / "train.jsonl")


def test_a_hub_that_cannot_be_reached_points_to_local_files(monkeypatch):
    import datasets

    def unreachable(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConfigError, match=r"no route.*--local_dataset_path"):
        gsm8k.load_examples()
