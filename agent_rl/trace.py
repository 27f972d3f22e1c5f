"""Append-only JSONL of trajectories, safe with many processes on one machine.

Each trajectory is one line, written with a single write under an advisory lock. Processes on different nodes need a
path of their own each (a network file system's locks are not relied on).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agent_rl.trajectory import Trajectory

__all__ = ["append", "append_lines", "read"]


def append(path: str | os.PathLike[str], trajectory: Trajectory) -> None:
    """Append one trajectory as one line; parent folders are made.

    Raises:
        OSError: when the file cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    append_lines(target, trajectory.to_json().encode() + b"\n")


def append_lines(path: str | os.PathLike[str], lines: bytes) -> None:
    """Append whole lines at once; a line torn by a killed run is ended first.

    Raises:
        OSError: when the file cannot be written.
    """
    with open(path, "ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        view = memoryview(lines if file.read(1) in (b"", b"\n") else b"\n" + lines)
        while view:
            view = view[file.write(view) :]


def read(path: str | os.PathLike[str], *, torn: Literal["raise", "skip"] = "raise") -> Iterator[Trajectory]:
    """Read the trajectories of a file in the order in which they were written.

    Args:
        path: the file.
        torn: what happens at an incomplete line, as a killed run may leave one.

    Raises:
        ValueError: naming file and line, for a line that is not a trajectory.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield Trajectory.from_json(line)
            except ValueError as error:
                if torn == "skip" and not _is_json(line):
                    continue
                raise ValueError(f"{path}, line {number}: {error}") from error


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
