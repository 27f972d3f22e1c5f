import json
import multiprocessing
import pickle
from pathlib import Path

import pytest

from agent_rl.trajectory import Message, StopReason, Trajectory, Turn, trace

WRITERS, LINES = 8, 25


def _trajectory(name, text="x"):
    return Trajectory(prompt=[Message("user", "?")], stop_reason=StopReason.ANSWERED, turns=[Turn(text)], id=name)


def _write(path, writer, start):
    start.wait()
    for line in range(LINES):
        trace.append(path, _trajectory(f"{writer}-{line}", text=str(writer) * 50_000))


def test_what_was_appended_is_read_in_order(tmp_path):
    path = tmp_path / "new" / "folder" / "trace.jsonl"
    written = [_trajectory(str(number), text="two\nlines \u4e2d") for number in range(3)]
    for trajectory in written:
        trace.append(path, trajectory)
    assert list(trace.read(path)) == written
    assert list(trace.read(str(path))) == written


def test_many_processes_append_whole_lines(tmp_path):
    path = tmp_path / "trace.jsonl"
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    writers = [context.Process(target=_write, args=(path, number, start)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    ids = [trajectory.id for trajectory in trace.read(path)]
    assert len(ids) == WRITERS * LINES
    for writer in range(WRITERS):  # the order within one writer is kept
        assert [name for name in ids if name.startswith(f"{writer}-")] == [f"{writer}-{line}" for line in range(LINES)]


def test_a_torn_line_is_named_after_the_whole_ones_were_read(tmp_path):
    path = tmp_path / "trace.jsonl"
    for number in range(2):
        trace.append(path, _trajectory(str(number)))
    with open(path, "ab") as file:
        file.write(_trajectory("torn").to_json().encode()[:40])
    lines = trace.read(path)
    assert [next(lines).id, next(lines).id] == ["0", "1"]
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 3: "):
        next(lines)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"\xff\n", b"[1]\n"])
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line)
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 1: ") as caught:
        list(trace.read(path))
    pickle.loads(pickle.dumps(caught.value))


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        trace.append(tmp_path / "file" / "trace.jsonl", _trajectory("0"))
    with pytest.raises(OSError, match="missing"):
        list(trace.read(tmp_path / "missing"))


def test_a_trace_of_version_0_1_0_is_read_and_written_with_an_empty_row(tmp_path):
    """The file was written by that version; `agent-rl audit tokens` and `reward score` read traces by the same call."""
    path = Path(__file__).with_name("trace_0.1.0.jsonl")
    done, failed = trace.read(path)
    assert (done.agent, done.answer, done.stop_reason) == ("plan_act_agent", "42", StopReason.ANSWERED)
    assert done.turns[1].notes == {"plan": ["Multiply."], "step": 1}
    assert done.score.components["correctness"] == 1.0
    assert done.info["tokens"]["sequences"][0]["mask"] == [1, 1]
    assert (failed.stop_reason, failed.error) == (StopReason.ENGINE_ERROR, "EngineError: gone")
    for each in (done, failed):
        trace.append(tmp_path / "again.jsonl", each)
    again = [each.to_dict() for each in trace.read(tmp_path / "again.jsonl", tokens=True)]  # tokens stand beside it now
    old = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each.pop("ended") for each in again] == [0.0, 0.0]
    assert [(each.pop("row"), each.pop("longest_tokens")) for each in again] == [({}, 0)] * 2  # which it did not keep
    assert again == old
