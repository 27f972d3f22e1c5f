"""An append-only JSONL file of trajectories, to which many processes may write.

Each trajectory is one line, which a single call writes to a file opened for appending, under an advisory lock. On a
file system without locks, the lock excludes only processes on the same node, so the file system itself must not mix
lines that several nodes append. Lustre never mixes appended lines, but NFS mounted with `nolock` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from json import JSONDecodeError
from pathlib import Path
from typing import Literal

from agent_rl.errors import ConfigError
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.images import store_images
from agent_rl.trajectory.trace.tokens import TokenReader, append_tokens
from agent_rl.work.parts import append_lines, parts

NAMES = ("trace.jsonl", "trajectories.jsonl")
"""File name of the trace in a run's folder, and in an evaluation's folder."""


def append(
    path: str | os.PathLike[str],
    trajectory: Trajectory,
    *,
    part_bytes: int | None = None,
    image_bytes: int | None = None,
) -> None:
    """Append one trajectory as one line; create parent folders.

    The tokens in `info["tokens"]` are written to the file next to the trace, and images to the trace's image folder.

    Args:
        path: the trace.
        trajectory: the trajectory, which is not changed.
        part_bytes: size in bytes at which the next part starts; if None, the trace has a single part.
        image_bytes: maximum size in bytes of all images together; None means no limit.

    Raises:
        OSError: the file cannot be written.
    """
    trajectory = store_images(path, trajectory, most_bytes=image_bytes)
    if tokens := trajectory.info.get("tokens"):
        append_tokens(path, trajectory.id, tokens, part_bytes=part_bytes)
        trajectory = replace(trajectory, info={key: trajectory.info[key] for key in trajectory.info if key != "tokens"})
    append_lines(path, trajectory.to_json().encode() + b"\n", part_bytes=part_bytes)


def read(
    path: str | os.PathLike[str], *, torn: Literal["raise", "skip"] = "raise", tokens: bool = False
) -> Iterator[Trajectory]:
    """Read the trajectories of a trace from all its parts, in the order in which they were written.

    Args:
        path: the trace.
        torn: whether to skip an incomplete line, which a killed run may leave, instead of raising an error.
        tokens: whether to fill `info["tokens"]` from the file next to the trace, with `TokenReader`.

    Raises:
        ValueError: a line is not a trajectory; the error names the file and the line.
    """
    reader = TokenReader(path) if tokens else None
    for part in parts(path):
        with open(part, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    trajectory = Trajectory.from_json(line)
                except ValueError as error:
                    if torn == "skip" and isinstance(error, (JSONDecodeError, UnicodeDecodeError)):
                        continue
                    raise ValueError(f"{part}, line {number}: {error}") from error
                if reader is not None and (stored := reader.read(trajectory.id)):
                    trajectory.info["tokens"] = stored
                yield trajectory


def trace_of(place: str | os.PathLike[str]) -> Path:
    """Return the trace in the folder of a run or an evaluation, or the path itself if it is a file.

    Raises:
        ConfigError: the folder contains no trace.
    """
    path = Path(place).expanduser()
    for candidate in [path / name for name in NAMES] if path.is_dir() else [path]:
        if candidate.is_file():
            return candidate
    problem = f"the folder contains no {' or '.join(NAMES)}" if path.is_dir() else "there is no such file or folder"
    raise ConfigError(str(place), problem, "Pass the folder of a run or an evaluation, or a trace")


_ROLE = re.compile(r"^(system|user|assistant|tool)[ \t]*\n", re.MULTILINE)


def segments(text: str, first: str = "user") -> list[tuple[str, str]]:
    """Return the role and text of each message in verl's dump; `first` is the role of text before the first role line.

    verl decodes a conversation without its special tokens, so a message starts with a line that contains only its role.
    """
    parts = _ROLE.split(text)
    messages = [(first, parts[0])] if parts[0] else []
    messages += list(zip(parts[1::2], parts[2::2], strict=True))
    return [(role, part.removesuffix("\n").lstrip("\n")) for role, part in messages]
