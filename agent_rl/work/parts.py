"""Files to which many processes append lines; a file that reaches a given size continues in a new part.

The parts of `trace.jsonl` are `trace.jsonl`, `trace.1.jsonl`, `trace.2.jsonl`, ... No file is ever renamed, so a
reader's position in a file stays valid. Lines are written atomically, under an advisory lock, even if the disk is full.
Only a process that is killed during a write leaves an incomplete line, after which the next writer starts a new line.
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
from functools import lru_cache
from pathlib import Path

NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Error numbers that mean that the file system has no locks."""


def append_lines(path: str | os.PathLike[str], lines: bytes, *, part_bytes: int | None = None) -> None:
    """Append all the lines or none; first end any line that a killed run left incomplete. Create parent folders.

    Args:
        path: the file's first part.
        lines: the lines; every line ends with a newline.
        part_bytes: size in bytes at which the next part starts; if None, the file has a single part.

    Raises:
        OSError: the file cannot be written, and contains none of the lines.
    """
    first = Path(path)
    first.parent.mkdir(parents=True, exist_ok=True)
    existing = parts(first) if part_bytes else [first]
    last = existing[-1]
    if part_bytes and last.exists() and last.stat().st_size >= part_bytes:
        last = _part(first, len(existing))
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


def replace_file(path: Path, content: str) -> None:
    """Replace a file atomically: the file has its old or its new content, even if the process is killed."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(content, encoding="utf-8")
    os.replace(temporary, path)


def parts(path: str | os.PathLike[str]) -> list[Path]:
    """Return a file's existing parts in order; the first part is included even if it does not exist."""
    first = Path(path)
    later = (_part(first, number) for number in itertools.count(1))
    return [first, *itertools.takewhile(Path.exists, later)]


def firsts(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, without the later parts of any file whose first part is among the paths."""
    paths = list(paths)
    later = {part for path in paths for part in parts(path)[1:]}
    return [path for path in paths if path not in later]


def whole_lines(path: str | os.PathLike[str], start: int) -> Iterator[tuple[int, bytes]]:
    """Yield a file's lines from a byte offset on, each with its own offset, except an incomplete last line."""
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield start, line
            start += len(line)


def sibling(trace: str | os.PathLike[str], kind: str) -> Path:
    """Return the path of a file next to a trace: `trace.<kind>.jsonl` for `trace.jsonl`."""
    return _with_word(Path(trace), kind)


def _part(first: Path, number: int) -> Path:
    return _with_word(first, str(number)) if number else first


@lru_cache
def _with_word(path: Path, word: str) -> Path:
    """Insert a word before the suffix; a new path for each write would fill Python's table of interned names."""
    return path.with_name(f"{path.stem}.{word}{path.suffix}")


@contextmanager
def _locked(file: io.FileIO) -> Iterator[None]:
    """Lock the file; on a file system without locks (often Lustre), the lock excludes only this node's processes."""
    with ExitStack() as stack:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            digest = hashlib.sha256(os.path.realpath(file.name).encode()).hexdigest()[:16]
            place = Path(tempfile.gettempdir()) / f"agent_rl-{os.getuid()}-{digest}.lock"
            # O_NOFOLLOW refuses a link that another user may have made
            lock = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
