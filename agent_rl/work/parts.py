"""Files to which many processes append lines, and which continue in a next part when they have reached their size.

The parts of `trace.jsonl` are `trace.jsonl`, `trace.1.jsonl`, `trace.2.jsonl`, ... No file is ever renamed, so a
reader's position in one stays right. Lines are written under an advisory lock, whole or not at all: of a full disk too.
Only a process that is killed within a write leaves part of a line, which the next writer ends.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["append_lines", "beside", "firsts", "parts", "whole_lines"]

NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Errors of a file system without locks."""


def append_lines(path: str | os.PathLike[str], lines: bytes, *, part_bytes: int | None = None) -> None:
    """Append whole lines at once; a line torn by a killed run is ended first, and parent folders are made.

    Args:
        path: the first part.
        lines: with an end of line.
        part_bytes: a part of this size is followed by another; None: there is one.

    Raises:
        OSError: when the file cannot be written; nothing of the lines is left in it.
    """
    first = Path(path)
    first.parent.mkdir(parents=True, exist_ok=True)
    there = parts(first) if part_bytes else [first]
    last = there[-1]
    if part_bytes and last.exists() and last.stat().st_size >= part_bytes:
        last = _part(first, len(there))
    with open(last, "ab+", buffering=0) as file, _locked(file):
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        view = memoryview(lines if file.read(1) in (b"", b"\n") else b"\n" + lines)
        try:
            while view:
                view = view[file.write(view) :]
        except OSError:
            file.truncate(end)
            raise


def parts(path: str | os.PathLike[str]) -> list[Path]:
    """The parts that there are, in their order; the first also where it does not exist."""
    first = Path(path)
    later = (_part(first, number) for number in itertools.count(1))
    return [first, *itertools.takewhile(Path.exists, later)]


def firsts(paths: Iterable[Path]) -> list[Path]:
    """The paths without those that are a later part of another one of them."""
    given = list(paths)
    later = {part for path in given for part in parts(path)[1:]}
    return [path for path in given if path not in later]


def whole_lines(path: str | os.PathLike[str], start: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a file from a byte on, each with the byte at which it begins, and without one that is torn."""
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield start, line
            start += len(line)


def beside(trace: str | os.PathLike[str], kind: str) -> Path:
    """The file beside a trace: `trace.<kind>.jsonl` of `trace.jsonl`."""
    path = Path(trace)
    return path.with_name(f"{path.stem}.{kind}{path.suffix}")


def _part(first: Path, number: int) -> Path:
    return first.with_name(f"{first.stem}.{number}{first.suffix}") if number else first


@contextmanager
def _locked(file: io.FileIO) -> Iterator[None]:
    """Alone with the file; where its file system has no locks (Lustre is often mounted so), on this node alone."""
    with ExitStack() as stack:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            digest = hashlib.sha256(os.path.realpath(file.name).encode()).hexdigest()[:16]
            place = Path(tempfile.gettempdir()) / f"agent_rl-{os.getuid()}-{digest}.lock"
            # a file of our own, never through a link that somebody else has made
            lock = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
