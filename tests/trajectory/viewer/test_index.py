"""What the index finds, also in files that grow, are torn, replaced or broken."""

import json
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from agent_rl.trajectory import trace
from agent_rl.trajectory.exports.atif import to_atif
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.query import Query
from agent_rl.trajectory.viewer.records import Source, find_sources
from tests.trajectory.viewer.conftest import trajectory


@pytest.mark.parametrize(
    ("query", "count"),
    [
        (Query(), 25),
        (Query({"step": "2"}), 13),
        (Query({"data_source": "math", "step": "1"}), 8),
        (Query({"stop_reason": "engine_error"}), 1),
        (Query({"reward_min": "0.85"}), 6),
        (Query({"reward_max": "0", "errors_min": "1"}), 4),
        (Query({"tool": "calculator"}), 24),
        (Query({"tool": "search"}), 0),
        (Query({"component": "efficiency", "component_max": "-0.15"}), 12),
        (Query({"component": "efficiency"}), 24),
        (Query({"error": "yes"}), 1),
        (Query({"error": "no"}), 24),
        (Query({"text": "what number 102"}), 8),
        (Query({"text": '"number" AND OR NOT ( 107'}), 0),
        (Query({"text": "engine"}), 1),
    ],
)
def test_each_filter_finds_its_trajectories(index: TraceIndex, query: Query, count: int) -> None:
    assert index.count(query) == len(index.find(query)) == count


def test_rows_are_sorted_and_those_without_a_value_come_last(index: TraceIndex) -> None:
    for descending in (True, False):
        query = Query({"sort": "reward", "order": "desc" if descending else "asc"})
        rewards = [row["reward"] for row in index.find(query)]
        assert rewards[-1] is None
        assert rewards[:-1] == sorted(rewards[:-1], reverse=descending)
    rows = index.find(Query({"sort": "id; DROP TABLE files"}))
    assert rows == index.find(Query({"sort": "step"}))
    assert [row["step"] for row in rows] == [2] * 13 + [1] * 12
    assert index.find(Query({"page": "1"})) == []


def test_the_first_rows_are_of_the_last_step_whatever_their_order(tmp_path: Path) -> None:
    """The last trajectories of a step are its longest."""
    for step, number in product((1, 2), range(200)):
        trace.append(tmp_path / "trace.jsonl", replace(trajectory(number, 0, step), answer="long" * (number >= 100)))
    with closing(TraceIndex(find_sources([str(tmp_path)]), tmp_path / "cache")) as index:
        index.refresh()
        rows = index.find(Query())
    assert {row["step"] for row in rows} == {2}
    assert 15 <= sum(row["answer"].startswith("long") for row in rows) <= 35


def test_what_is_appended_comes_in_and_a_torn_line_later(run: Path, index: TraceIndex) -> None:
    line = trajectory(9, 0).to_json() + "\n"
    with open(run / "trace.jsonl", "a") as file:
        file.write(line + line[:40])
    assert index.refresh() == 1
    assert index.refresh() == 0
    with open(run / "trace.jsonl", "a") as file:
        file.write(line[40:])
    assert index.refresh() == 1
    assert index.count(Query({"text": "number 109"})) == 2


def test_later_parts_of_a_trace_belong_to_it(run: Path, index: TraceIndex) -> None:
    for sample in range(2):  # a part of a byte: the next one is begun
        trace.append(run / "trace.jsonl", trajectory(9, sample), part_bytes=1)
    assert [path.name for path in trace.parts(run / "trace.jsonl")] == ["trace.jsonl", "trace.1.jsonl", "trace.2.jsonl"]
    assert index.refresh() == 2
    found = index.find(Query({"text": "number 109"}))
    assert [each["file"] for each in found] == ["my_run/trace.jsonl"] * 2
    assert index.group(found[0]) == sorted(found, key=lambda row: row["reward"], reverse=True)
    columns, record = index.get(found[0]["id"]) or ({}, {})
    assert columns["name"] == record["id"] == found[0]["name"]
    assert [source.name for source in find_sources([str(run)])] == ["my_run/trace.jsonl"]


def test_lines_that_are_no_trajectory_are_counted_and_left_out(run: Path, index: TraceIndex) -> None:
    with open(run / "trace.jsonl", "ab") as file:
        file.write(b'{"a": 1}\nnot json\n\n[]\n\xff\xfe\n' + b'{"turns": 3, "stop_reason": "x"}\n')
    trace.append(run / "trace.jsonl", trajectory(9, 0))
    assert index.refresh() == 1
    assert index.skipped() == 5
    assert index.count() == 26


def test_a_file_that_was_replaced_or_cut_is_read_anew(run: Path, index: TraceIndex) -> None:
    lines = (run / "trace.jsonl").read_bytes().splitlines(keepends=True)
    (run / "new").write_bytes(b"".join(lines[:5]))
    (run / "new").replace(run / "trace.jsonl")
    assert index.refresh() == 5
    assert (index.count(), index.count(Query({"text": "engine"})), index.count(Query({"tool": "calculator"}))) == (
        5,
        0,
        5,
    )
    (run / "trace.jsonl").write_bytes(lines[0])
    index.refresh()
    assert index.count() == 1


def test_samples_that_a_resumed_run_repeated_are_another_group(run: Path, index: TraceIndex) -> None:
    before = index.find(Query({"text": "number 101", "step": "1"}))
    trace.append(run / "trace.jsonl", trajectory(1, 0, id="repeated-1_0"))
    assert index.refresh() == 1
    groups = [index.group(row) for row in index.find(Query({"text": "number 101", "step": "1"}))]
    assert sorted(map(len, groups)) == [1, *[len(before)] * len(before)]


def records(index: TraceIndex) -> list[dict[str, Any]]:
    return [index.record(row) for row in index.find(Query())]


def test_a_longer_file_with_the_inode_of_a_deleted_one_is_read_anew(run: Path, index: TraceIndex) -> None:
    with open(run / "trace.jsonl", "r+b") as file:  # the same inode
        file.truncate()
        file.writelines(trajectory(9, sample).to_json().encode() + b"\n" for sample in range(40))
    index.refresh()
    assert (index.count(), index.skipped(), len(records(index))) == (40, 0, 40)


def test_the_parts_of_a_trace_that_was_moved_away_are_dropped(run: Path, index: TraceIndex, tmp_path: Path) -> None:
    trace.append(run / "trace.jsonl", trajectory(9, 0), part_bytes=1)
    assert (index.refresh(), index.count()) == (1, 26)
    for part in trace.parts(run / "trace.jsonl"):
        part.rename(tmp_path / part.name)
    index.refresh()
    assert index.count() == index.count(Query({"tool": "calculator"})) == 0
    trace.append(run / "trace.jsonl", trajectory(8, 0))
    index.refresh()
    assert [each["id"] for each in records(index)] == [trajectory(8, 0).id]


def test_the_tokens_of_a_replaced_trace_are_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "run/trace.jsonl"
    with closing(TraceIndex([Source(path, "run/trace.jsonl")], tmp_path / "cache")) as index:
        for text, samples in (("", 3), ("longer", 5)):
            stored = {}
            for sample in range(samples):
                tokens = {"messages": [text * sample], "tools": [], "sequences": []}
                own = trajectory(1, sample, text=text, info={"tokens": tokens})
                trace.append(path, own)
                stored[own.id] = tokens
            index.refresh()
            assert {row["name"]: index.tokens(row, row["name"]) for row in index.find(Query())} == stored
            rmtree(path.parent)


def test_a_document_that_is_written_again_with_more_steps_is_one_trajectory(tmp_path: Path) -> None:
    document = to_atif(trajectory(1, 0))
    document["extra"] = {}
    with closing(TraceIndex([Source(tmp_path / "a.json", "a.json")], tmp_path / "cache")) as index:
        for count in (1, len(document["steps"])):
            (tmp_path / "a.json").write_text(json.dumps({**document, "steps": document["steps"][:count]}))
            index.refresh()
        (record,) = records(index)
    assert len(record["turns"]) == len(trajectory(1, 0).turns)


def test_a_broken_database_is_made_again(run: Path, index: TraceIndex, tmp_path: Path) -> None:
    index.close()
    for file in index.path.parent.glob(f"{index.path.name}*"):
        file.write_bytes(b"no database " * 1000)
    again = TraceIndex(find_sources([str(run)]), tmp_path / "cache")
    assert (again.refresh(), again.count()) == (25, 25)
    again.close()


@pytest.mark.parametrize("obstacle", ["the folder", "the database"])
def test_where_none_can_be_kept_an_index_is_temporary(
    run: Path, index: TraceIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture, obstacle: str
) -> None:
    """As without a home directory, or on a file system without locks."""
    folder = tmp_path / "cache of another"
    if obstacle == "the folder":
        folder.write_text("a file")
    else:
        (folder / index.path.name).mkdir(parents=True)
    own = TraceIndex(find_sources([str(run)]), folder)
    assert own.refresh() == own.count() == 25
    assert f"the index cannot be kept in {folder} (" in caplog.text
    assert own.path.exists()
    own.close()
    assert not own.path.parent.exists()


def test_what_a_database_cannot_keep_is_left_out_or_replaced(run: Path, index: TraceIndex) -> None:
    lines = [
        json.dumps({**trajectory(9, 0).to_dict(), "answer": "lone \ud800", "error": "\udfff"}),
        json.dumps({**trajectory(9, 1).to_dict(), "info": {"step": 10**30}}),
        "[" * 200_000 + "]" * 200_000,
    ]
    with open(run / "trace.jsonl", "a") as file:
        file.write("\n".join(lines) + "\n")
    assert (index.refresh(), index.skipped()) == (2, 1)
    assert index.count(Query({"text": "number 109"})) == 2


def test_two_processes_can_have_the_same_run_open(tmp_path: Path) -> None:
    """A viewer that has nothing new to read does not lock out a report."""
    trace.append(tmp_path / "trace.jsonl", trajectory(0, 0))
    sources = find_sources([str(tmp_path)])
    with closing(TraceIndex(sources, tmp_path / "cache")) as viewer:
        assert viewer.refresh() == 1
        assert viewer.refresh() == 0
        with closing(TraceIndex(sources, tmp_path / "cache")) as other:
            other._writer.execute("PRAGMA busy_timeout = 100")
            assert other.refresh() == 0
            assert other.count() == 1
