import errno
import fcntl
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_rl.trajectory import trace
from agent_rl.work.parts import sibling

MIB = 1 << 20
LENGTH = 64 * MIB + len('{"text": ""}\n')
WRITER = """
import sys
from agent_rl.trajectory import trace
line = b'{"text": "' + b"x" * (64 << 20) + b'"}\\n'
while True:
    trace.append_lines(sys.argv[1], line)
    print("whole", flush=True)
"""


def test_a_part_that_has_its_size_is_followed_by_the_next(tmp_path):
    first = tmp_path / "trace.jsonl"
    assert trace.parts(first) == [first]
    for number in range(5):
        trace.append_lines(first, b"%d%s\n" % (number, b"." * 60), part_bytes=100)
    assert [path.name for path in trace.parts(first)] == ["trace.jsonl", "trace.1.jsonl", "trace.2.jsonl"]
    assert [path.read_bytes()[:1] for path in trace.parts(first)] == [b"0", b"2", b"4"]
    assert trace.firsts([*trace.parts(first), tmp_path / "trace.tokens.jsonl"]) == [
        first,
        tmp_path / "trace.tokens.jsonl",
    ]

    for path in trace.parts(first):  # a new run begins in the same process
        path.unlink()
    trace.append_lines(first, b"new\n", part_bytes=100)
    assert first.read_bytes() == b"new\n"


def test_a_later_write_interns_no_name_again(tmp_path, monkeypatch):
    first, names, intern = tmp_path / "trace.jsonl", [], sys.intern
    monkeypatch.setattr(sys, "intern", lambda name: names.append(name) or intern(name))

    def write():
        trace.append_lines(sibling(first, "tokens"), b"x\n", part_bytes=100)
        return names.count("trace.tokens.1.jsonl")

    assert write() == write() == 1


def test_another_process_goes_on_in_the_newest_part(tmp_path):
    for name in ("trace.jsonl", "trace.1.jsonl", "trace.2.jsonl"):
        (tmp_path / name).write_bytes(b"x" * 99 + b"\n")
    (tmp_path / "trace.2.jsonl").write_bytes(b"short\n")
    trace.append_lines(tmp_path / "trace.jsonl", b"next\n", part_bytes=100)
    assert (tmp_path / "trace.2.jsonl").read_bytes() == b"short\nnext\n"


def test_of_lines_that_a_full_disk_does_not_take_nothing_is_left(tmp_path):
    path = tmp_path / "trace.jsonl"
    trace.append_lines(path, b"before\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))  # the kernel takes a part, and refuses the rest
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            trace.append_lines(path, b"x" * 2 * MIB + b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"before\n"


def test_where_a_file_system_has_no_locks_the_processes_of_a_node_wait_for_one_another(tmp_path, monkeypatch):
    """As on Lustre, which is often mounted so; the threads have files of their own, as processes have."""
    path, local, lock = tmp_path / "lustre/trace.jsonl", tmp_path / "local", fcntl.flock
    local.mkdir()

    def flock(file, operation):
        if "lustre" in str(getattr(file, "name", "")):
            raise OSError(errno.ENOSYS, "Function not implemented")
        lock(file, operation)

    monkeypatch.setattr(tempfile, "tempdir", str(local))
    monkeypatch.setattr(fcntl, "flock", flock)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: trace.append_lines(path, b"%d\n" % number * 1000), range(200)))
    blocks = [list(block) for _, block in itertools.groupby(path.read_text().splitlines())]
    assert sorted(int(block[0]) for block in blocks) == list(range(200))
    assert {len(block) for block in blocks} == {1000}
    (made,) = local.iterdir()
    made.unlink()
    made.symlink_to(tmp_path / "elsewhere")  # of somebody else
    with pytest.raises(OSError, match="symbolic links"):
        trace.append_lines(path, b"last\n")
    assert not (tmp_path / "elsewhere").exists()


def killed_within_a_write(path):
    """Number of whole lines that the process reported, and the file's size."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        while path.stat().st_size % LENGTH in (0, 1):  # until a write is under way
            time.sleep(0)
        os.kill(writer.pid, signal.SIGKILL)
        return 1 + writer.stdout.read().count(b"whole"), path.stat().st_size


def test_a_process_killed_within_a_write_loses_that_line_only(tmp_path):
    for attempt in range(20):  # on a busy machine the write may end before the signal comes
        path = tmp_path / f"{attempt}.jsonl"
        written, torn = killed_within_a_write(path)
        if torn % LENGTH:
            break
    trace.append_lines(path, b'"next"\n')
    with open(path, "rb") as file:
        lines = file.readlines()
    assert [line.endswith(b"\n") for line in lines] == [True] * (written + 2)
    assert len(lines[written]) == torn - written * LENGTH + 1  # the torn one, ended by the next writer
    assert all(json.loads(line)["text"] for line in lines[:written])
    assert lines[-1] == b'"next"\n'
