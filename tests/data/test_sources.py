"""Raw files are read with their places, and every kind of broken file gets one clear error."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.data.from_file import FROM_FILE
from agent_rl.data.sources import from_hub, read_raw, split_files, split_of
from agent_rl.errors import ConfigError

ROWS = [{"question": f"{number} + 1?", "answer": number + 1} for number in range(5)]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)
CSV = "question,answer\n" + "".join(f"{row['question']},{row['answer']}\n" for row in ROWS)
OPTIONS = ("--prompt", "question", "--answer", "answer")


def parquet(rows: list[dict[str, Any]]) -> bytes:
    pq.write_table(pa.Table.from_pylist(rows), file := io.BytesIO())
    return file.getvalue()


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


FILES = {
    "a.jsonl": LINES,
    "b.json": LINES,
    "c.json": json.dumps(ROWS, indent=1),
    "d.jsonl.gz": gzip.compress(LINES.encode()),
    "e.parquet": parquet(ROWS),
    "f.csv": CSV,
    "g.csv": "\ufeff" + CSV.replace("\n", "\r\n") + "\r\n",
    "h.tsv": CSV.replace(",", "\t"),
    "i.csv.gz": gzip.compress(CSV.encode()),
    "j.ndjson": LINES + "\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    found = list(read_raw(written(tmp_path / name, FILES[name])))
    of_text = [{key: str(value) for key, value in row.items()} for row in ROWS]
    assert [raw.value for raw in found] == (of_text if "sv" in name else ROWS)
    last = {"a": "line 5", "b": "line 5", "c": "row 4", "d": "line 5", "e": "row 4", "j": "line 5"}
    assert found[-1].place == f"{tmp_path / name}, {last.get(name[0], 'line 6')}"


def test_text_in_quotes_may_have_commas_and_lines(tmp_path: Path) -> None:
    text = 'question,answer\n"a, ""b""\nc?",007\nd?,1\n'
    found = list(read_raw(written(tmp_path / "a.csv", text)))
    assert [raw.value["answer"] for raw in found] == ["007", "1"]
    assert found[0].value["question"] == 'a, "b"\nc?'
    assert found[1].place.endswith("a.csv, line 4")


BROKEN: dict[str, tuple[str, str | bytes | None, str, str]] = {  # the file's name and content, the place, the problem
    "no such file": ("x.csv", None, "", "there is no such file"),
    "a folder": (".", None, "", "it is a folder"),
    "no known ending": ("x.xlsx", CSV, "", "extension .xlsx"),
    "empty CSV": ("x.csv", "", "", "the file is empty"),
    "only a header": ("x.csv", "question,answer\n", "", "there are no rows"),
    "bad JSON line": ("x.jsonl", LINES + '{"a": \n', "line 6", "it is not JSON"),
    "cut-off list": ("x.json", json.dumps(ROWS)[:-9], "", "it is not JSON"),
    "number in a list": ("x.json", '[{"question": "a?", "answer": 1}, 2]', "row 1", "(2)"),
    "one object over lines": ("x.json", '{\n"a": 1}', "line 1", "one list of objects"),
    "too deep": ("x.jsonl", '{"a":' + "[" * 10**5, "line 1", "it is not JSON"),
    "latin1 JSONL": ("x.jsonl", LINES.encode() + b'{"a": "\xe9"}', "line 6", "not UTF-8"),
    "UTF-16": ("x.csv", CSV.encode("utf-16"), "line 1", "not UTF-8"),
    "too many cells": ("x.csv", CSV + "a, b?,1\n", "line 7", "3 cells"),
    "open quote": ("x.csv", CSV + '"a?,1\n', "line 7", "is not CSV (unexpected end of data)"),
    "open quote in the last column": ("x.csv", CSV + 'a?,"5 inch\nb?,1\n', "line 7", "(unexpected end of data)"),
    "text after a quote": ("x.csv", 'question,answer\n"a" b?,1\nc?,1\n', "line 2", "double the quotes in it"),
    "quotes in TSV": ("x.tsv", CSV.replace(",", "\t") + '"a" b?\t1\n', "line 7", "expected after '\"'"),
    "doubled column": ("x.csv", "question,question,answer\na,b,c", "line 1", "twice"),
    "cut-off parquet": ("x.parquet", parquet(ROWS)[:-20], "", "cannot be read as parquet"),
    "broken page": ("x.parquet", b"PAR1" + b"\0" * 200 + parquet(ROWS)[204:], "", "cannot be read as parquet"),
    "cut-off gzip": ("x.jsonl.gz", gzip.compress(LINES.encode())[:-12], "", "Copy or"),
    "missing column": ("x.csv", "question,result\na?,1\n", "line 2, column answer", "no col"),
    "null answer": ("x.parquet", parquet([{**ROWS[0], "answer": None}]), "row 0, column answer", "the value is None"),
    "empty answer": ("x.csv", CSV + "a?,\n", "line 7, column answer", "got ''"),
    "number as question": ("x.jsonl", '{"question": 7, "answer": 1}', "line 1, column question", "expected text"),
    "mapping as question": (
        "x.jsonl",
        LINES + '{"question": {"a": 1}, "answer": 1}',
        "line 6, own/from_file, train row 4, column prompt",
        "is not a prompt",
    ),
    "no JSON in a column": ("x.parquet", parquet([{**ROWS[0], "sound": b"\0"}]), "row 0, ", "JSON cannot represent"),
    "half a character": ("x.jsonl", '{"question": "\\ud800", "answer": "1"}', "line 1, ", "UTF-8 cannot encode it"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_input_gets_one_clear_error(tmp_path: Path, refusal: Any, kind: str) -> None:
    name, content, place, problem = BROKEN[kind]
    if content is not None:
        written(tmp_path / name, content)
    (line,) = refusal(FROM_FILE, "--input", tmp_path / name, *OPTIONS).splitlines()
    assert line.startswith(f"error: {tmp_path / name}{', ' if place else ''}{place}")
    assert problem in line
    assert not list(tmp_path.glob("out/*"))


def test_a_misspelled_file_gets_the_nearest_name(tmp_path: Path) -> None:
    written(tmp_path / "train.jsonl", LINES)
    with pytest.raises(ConfigError, match=r"trian\.jsonl: there is no such file.*'train\.jsonl'"):
        list(read_raw(tmp_path / "trian.jsonl"))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.jsonl", "train"),
        ("my_test-00001-of-00002.parquet", "test"),
        ("nq_open_dev.jsonl", "validation"),
        ("attested.csv", "train"),
        ("valid.csv.gz", "validation"),
    ],
)
def test_a_files_name_says_its_split(name: str, split: str) -> None:
    assert split_of(name) == split


def test_the_files_of_a_folder_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("train.jsonl", "test.csv", "train_socratic.jsonl", "README.md"):
        written(tmp_path / name, LINES)
    assert split_files(tmp_path) == {"train": [tmp_path / "train.jsonl"], "test": [tmp_path / "test.csv"]}
    written(tmp_path / "train.parquet", "")
    with pytest.raises(ConfigError, match=r"train\.jsonl, train\.parquet"):
        split_files(tmp_path)
    (tmp_path / "hub" / "main").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"no file such as train\.jsonl"):
        split_files(tmp_path / "hub")
    shards = ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001-a09b74b3ef9c3b56")
    for name in shards:
        written(tmp_path / "hub" / "main" / f"{name}.parquet", "")
    assert [len(paths) for paths in split_files(tmp_path / "hub").values()] == [1, 2]


def test_a_hub_that_cannot_be_reached_points_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConfigError, match=r"no route.*--input"):
        list(from_hub("openai/gsm8k", "main", "train"))


@pytest.mark.trainer  # the package imports torch
def test_a_data_set_of_the_package_datasets_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    written(tmp_path / "set" / "train.parquet", parquet(ROWS))
    assert [raw.value for raw in from_hub(str(tmp_path / "set"))] == ROWS
    with pytest.raises(ConfigError, match=r"cannot be loaded from the Hugging Face Hub .*nowhere"):
        list(from_hub(str(tmp_path / "set"), split="nowhere"))
