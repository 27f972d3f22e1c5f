import asyncio
import fcntl
import resource
import time

import pytest

from agent_rl.trajectory import StopReason, Trajectory, trace


def trajectory(name, text=""):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, id=name, answer=text)


def ids(path):
    return [each.id for each in trace.read(path)]


async def test_everything_is_in_its_file_when_the_call_returns(tmp_path):
    path = tmp_path / "trace.jsonl"
    writer = trace.TraceWriter(path, part_bytes=1000)
    tokens = {"messages": [], "tools": [], "sequences": []}

    for number in range(4):
        writer.tokens(f"{number}", tokens)
        await writer.trajectory(trajectory(f"{number}", "x" * 1000))
        assert ids(path)[-1] == f"{number}"
        assert trace.TokenReader(path).read(f"{number}") == tokens
    writer.batch(lambda: trace.TrainedBatch(1, 0, ["0_0"], [1.0]))
    assert len(list(trace.read_batches(path))) == 1
    assert len(trace.parts(path)) == 4
    assert writer.lost == 0


async def test_a_full_disk_is_reported_once_and_what_follows_is_written_again(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    writer = trace.TraceWriter(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    await writer.trajectory(trajectory("before"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for number in range(3):
            await writer.trajectory(trajectory(f"lost {number}", "x" * 200_000))
        writer.batch(lambda: 1 / 0)  # whatever goes wrong
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await writer.trajectory(trajectory("after"))
    assert ids(path) == ["before", "after"]
    assert writer.lost == 4
    assert capsys.readouterr().out.splitlines() == [
        f"agent_rl: the trace {path} cannot be written ([Errno 27] File too large). New records are lost, "
        "and training continues",
        f"agent_rl: the trace {path} can be written again; 4 records were lost",
    ]


def test_a_file_system_that_hangs_delays_a_run_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("agent_rl.trajectory.trace.writer.PATIENCE_S", 0.2)
    path = tmp_path / "trace.jsonl"
    writer = trace.TraceWriter(path)

    async def write(*names):
        start = time.monotonic()
        await asyncio.gather(*[writer.trajectory(trajectory(name)) for name in names])
        return time.monotonic() - start

    asyncio.run(write("before"))
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the writing thread waits in the kernel
        assert 0.15 < asyncio.run(write("late 0", "late 1")) < 2
        assert asyncio.run(write("lost 0", "lost 1")) < 0.1
        start = time.monotonic()
        writer.batch(lambda: pytest.fail("it must not wait"))
        assert time.monotonic() - start < 0.1
    for _ in range(100):
        if len(ids(path)) == 3:
            break
        time.sleep(0.01)
    asyncio.run(write("after"))
    assert ids(path) == ["before", "late 0", "late 1", "after"]
    assert writer.lost == 3
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert "no answer for 0.2 s" in said[0]
