from pathlib import Path

import pytest

from agent_rl import read_trace
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Message, Score, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn, trace
from agent_rl.trajectory.trace.batches import append_batch


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run: one trajectory with two turns and three calls, and one that failed at once."""
    calls = [ToolCall("sql", {"query": "SELECT 1"}), ToolCall("sql")]
    results = [
        ToolResult("0", "sql", "1", seconds=0.5, metrics={"cached": True}),
        ToolResult("1", "sql", "no query", ToolStatus.INVALID_ARGUMENTS),
    ]
    solved = Trajectory(
        [Message("user", "?")], StopReason.ANSWERED, id="a_0", data_source="my/shop", answer="1", ground_truth=["1"],
        turns=[Turn("look", 7, calls, results, observation="1\nno query"), Turn("answer", 3, [ToolCall("sql")])],
        score=Score(0.9, {"correctness": 1.0, "efficiency": -0.1}), info={"step": 4, "split": "train", "index": 2},
    )  # fmt: skip
    failed = Trajectory([], StopReason.ERROR, id="a_1", error="boom", row={"extra_info": {"split": "test"}})
    for trajectory in (solved, failed):
        trace.append(tmp_path / "trace.jsonl", trajectory)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(4, 0, ["a_0_0", "a_0_1"], [0.5, [1.0, 2.0]]))
    with open(tmp_path / "trace.jsonl", "ab") as file:
        file.write(b'{"version": 1, "pro')  # of a killed run
    return tmp_path


def test_a_run_is_three_tables(run: Path) -> None:
    tables = read_trace(run)
    solved, failed = tables.trajectories.to_dict("records")
    expected = {
        "id": "a_0", "group": "a", "step": 4, "split": "train", "index": 2, "stop_reason": "answered", "reward": 0.9,
        "reward.correctness": 1.0, "reward.efficiency": -0.1, "advantage": 1.0, "turns": 2, "calls": 3,
        "ground_truth": ["1"],
    }  # fmt: skip
    assert {name: solved[name] for name in expected} == expected
    assert (failed["stop_reason"], failed["error"], failed["split"], failed["turns"]) == ("error", "boom", "test", 0)
    assert tables.trajectories["advantage"].isna().tolist() == [False, True]
    assert tables.turns[["id", "turn", "text", "tokens", "calls"]].values.tolist() == [
        ["a_0", 0, "look", 7, 2],
        ["a_0", 1, "answer", 3, 1],
    ]
    assert tables.calls[["turn", "call", "tool"]].values.tolist() == [[0, 0, "sql"], [0, 1, "sql"], [1, 0, "sql"]]
    assert tables.calls["status"].fillna("none").tolist() == ["ok", "invalid_arguments", "none"]
    assert tables.calls.loc[0, ["arguments", "text", "seconds"]].tolist() == [{"query": "SELECT 1"}, "1", 0.5]


def test_a_file_has_the_tables_of_its_folder_and_an_empty_one_has_their_columns(run: Path, tmp_path: Path) -> None:
    for ours, theirs in zip(read_trace(run / "trace.jsonl"), read_trace(str(run)), strict=True):
        assert ours.equals(theirs)
    (tmp_path / "trajectories.jsonl").touch()
    empty = read_trace(tmp_path / "trajectories.jsonl")
    assert [len(table) for table in empty] == [0, 0, 0]
    assert {"id", "reward"} <= set(empty.trajectories)


def test_what_has_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the folder contains no trace\.jsonl or trajectories\.jsonl"):
        read_trace(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        read_trace(tmp_path / "absent")
