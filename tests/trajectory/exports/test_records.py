import csv
import json
from pathlib import Path

from agent_rl.trajectory import trace
from agent_rl.trajectory.exports.records import write_csv
from tests.trajectory.exports.command import export
from tests.trajectory.exports.made import HOSTILE, trajectory


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


def test_a_whole_number_stays_whole_where_another_record_has_none(tmp_path: Path) -> None:
    assert write_csv(tmp_path / "table.csv", [{"step": 1, "split": None}, {"reward": 0.5, "split": "=1"}]) == 2
    assert (tmp_path / "table.csv").read_bytes() == b"step,split,reward\r\n1,,\r\n,'=1,0.5\r\n"
