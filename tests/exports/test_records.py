import csv
import json

import pytest

from agent_rl import trace
from agent_rl.errors import ConfigError
from agent_rl.trace.batches import append_batch
from agent_rl.trajectory import StopReason
from tests.exports.command import export
from tests.exports.made import HOSTILE, trajectory


@pytest.fixture
def folder(tmp_path):
    """Six trajectories in two parts, one of validation, one unscored; a batch with two of them."""
    for number in range(4):
        trace.append(tmp_path / "trace.jsonl", trajectory(number, reward=number / 2), part_bytes=4000)
    trace.append(tmp_path / "trace.jsonl", trajectory(8, info={"split": "test", "step": 0}), part_bytes=4000)
    trace.append(tmp_path / "trace.jsonl", trajectory(9, reward=None, error="gone"), part_bytes=4000)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(5, 0, ["p0_0_0", "p1_0_0"], [-0.5, [1.0, 2.0]]))
    return tmp_path


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_flat_record_for_each(folder):
    assert len(trace.parts(folder / "trace.jsonl")) > 1
    assert export(folder, "jsonl")["trajectories"] == 6
    first, second, *_ = found = records(folder / "trace.records.jsonl")
    assert {type(value) for each in found for value in each.values()} <= {str, int, float, type(None)}
    assert (first["id"], first["group"], first["step"], first["split"]) == ("p0_0", "p0", 5, "train")
    assert (first["reward.correctness"], first["reward.format"]) == (0.0, -0.5)
    assert (first["advantage"], second["advantage"], second["trained_in_step"]) == (-0.5, 1.5, 5)
    assert (first["tool_calls"], first["tool_errors"], first["malformed_turns"], first["turns"]) == (3, 1, 1, 2)
    assert (found[-1]["reward"], found[-1]["error"]) == (None, "gone")
    assert HOSTILE in first["question"]
    import pandas

    assert pandas.read_json(folder / "trace.records.jsonl", lines=True)["reward"].sum() == 4.0


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--split", "test"], ["p8_0"]),
        (["--step", "5", "--min-reward", "1"], ["p2_0", "p3_0"]),
        (["--limit", "1"], ["p0_0"]),
    ],
)
def test_some_of_them(folder, words, ids):
    export(folder / "trace.jsonl", "jsonl", "-o", folder / "new/some.jsonl", *words)
    assert [each["id"] for each in records(folder / "new/some.jsonl")] == ids


def test_a_spreadsheet_computes_nothing(folder):
    hostile = [HOSTILE, "+1", "-1", "@a", "\t=1", "\r=1", " =1", "\n=1", "=1\n", 'a"b,c\nd']
    for number, answer in enumerate(hostile):
        trace.append(folder / "trace.jsonl", trajectory(20 + number, answer=answer))
    export(folder, "csv")
    with open(folder / "trace.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = {row["id"]: row["answer"] for row in rows}
    assert [shown[f"p{20 + number}_0"] for number in range(len(hostile))] == [
        *(f"'{text}" for text in hostile[:-1]), hostile[-1],
    ]  # fmt: skip
    assert rows[0]["reward.format"] == "-0.5"  # a number is one
    assert rows[0]["reward"] == "0.0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such", "jsonl"), "no such file"),
        ((".", "jsonl"), "no trace.jsonl or trajectories.jsonl"),
        (("text", "jsonl"), "line 1"),
        (("text", "csv", "--follow"), "--follow: only spans are sent"),
        (("text", "otel", "--follow"), "--follow: there is no collector"),
        (("good", "jsonl", "-o", "text/x"), "cannot be written"),
    ],
)
def test_mistakes_of_the_user(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text('{"a": 1}\n')
    trace.append(tmp_path / "good", trajectory(stop_reason=StopReason.ANSWERED))
    with pytest.raises(ConfigError, match=said):
        export(*arguments)
