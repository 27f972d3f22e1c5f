from dataclasses import replace
from pathlib import Path

import pytest

from agent_rl import read_trace
from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, ToolCall, Trajectory, trace
from agent_rl.trajectory.trace.batches import append_batch
from tests.trajectory.exports.made import trajectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run: one trajectory with two turns and four calls, and one that failed at once."""
    solved = trajectory()
    solved.turns[1].calls = [ToolCall("calc")]  # which has no result
    failed = Trajectory([], StopReason.ERROR, id="a_1", error="boom", row={"extra_info": {"split": "test"}})
    for each in (solved, failed):
        trace.append(tmp_path / "trace.jsonl", each)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(5, 0, ["p0_0_0", "p0_0_1"], [0.5, [1.0, 2.0]]))
    with open(tmp_path / "trace.jsonl", "ab") as file:
        file.write(b'{"version": 1, "pro')  # of a killed run
    return tmp_path


def test_a_run_is_three_tables(run: Path) -> None:
    tables = read_trace(run)
    solved, failed = tables.trajectories.to_dict("records")
    expected = {
        "id": "p0_0", "group": "p0", "step": 5, "split": "train", "index": 0, "stop_reason": "answered", "reward": 1.0,
        "reward.correctness": 1.0, "reward.format": -0.5, "advantage": 1.0, "turns": 2, "calls": 4,
        "ground_truth": ["42", 42],
    }  # fmt: skip
    assert {name: solved[name] for name in expected} == expected
    assert (failed["stop_reason"], failed["error"], failed["split"], failed["turns"]) == ("error", "boom", "test", 0)
    assert tables.trajectories["advantage"].isna().tolist() == [False, True]
    assert tables.turns[["id", "turn", "tokens", "calls"]].values.tolist() == [["p0_0", 0, 12, 3], ["p0_0", 1, 4, 1]]
    assert tables.turns.loc[1, "text"] == "It is 42."
    assert tables.calls[["turn", "call", "tool"]].values.tolist() == [
        [0, 0, "search"], [0, 1, "calc"], [0, 2, "calc"], [1, 0, "calc"],
    ]  # fmt: skip
    assert tables.calls["status"].fillna("none").tolist() == ["ok", "ok", "error", "none"]
    assert tables.calls.loc[1, ["arguments", "text", "seconds"]].tolist() == [{"e": "6*7"}, "42", 0.1]


def test_a_file_has_the_tables_of_its_folder_and_an_empty_one_has_their_columns(run: Path, tmp_path: Path) -> None:
    for ours, theirs in zip(read_trace(run / "trace.jsonl"), read_trace(str(run)), strict=True):
        assert ours.equals(theirs)
    (tmp_path / "trajectories.jsonl").touch()
    empty = read_trace(tmp_path / "trajectories.jsonl")
    assert [len(table) for table in empty] == [0, 0, 0]
    assert {"id", "reward"} <= set(empty.trajectories)


def test_of_an_episode_that_an_evaluation_repeated_the_last_record_counts(tmp_path: Path) -> None:
    for error in ("connection lost", None):
        trace.append(tmp_path / "trajectories.jsonl", replace(trajectory(), error=error))
    trace.append(tmp_path / "trajectories.jsonl", replace(trajectory(), id=""))
    trace.append(tmp_path / "trajectories.jsonl", replace(trajectory(), id=""))  # of another program, without ids
    tables = read_trace(tmp_path)
    assert tables.trajectories["id"].tolist() == ["p0_0", "", ""]
    assert tables.trajectories["error"].isna().all()
    assert [len(table) for table in tables] == [3, 3 * 2, 3 * len(trajectory().results)]


def test_what_has_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the folder contains no trace\.jsonl or trajectories\.jsonl"):
        read_trace(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        read_trace(tmp_path / "absent")
