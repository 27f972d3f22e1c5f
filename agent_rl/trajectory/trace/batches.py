"""Reads and writes `trace.batches.jsonl` next to a trace: the rows of each training batch, with their advantages.

Each line is `{"step": ..., "update": ..., "rows": ...}`, where `rows` is JSON, compressed with zlib and encoded as
base64, that contains the names of the training sequences, their advantages, and the positions of padding rows. The
advantage of a sequence is a number; if its tokens have different advantages, it is the text that
`agent_rl.trajectory.trace.tokens.pack` returns for the advantages of all its tokens. The advantage of a token that is
not trained on is -0.0, which distinguishes it from a trained token whose advantage is 0.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean

from agent_rl.trajectory.trace.tokens import compressed, decompressed, pack, unpack
from agent_rl.work.parts import append_lines, parts, sibling, whole_lines

Advantage = float | list[float]


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """The rows of one update."""

    step: int
    """The training step."""
    update: int
    """Number of the update within the step, starting at 0."""
    names: list[str]
    """Name of each row: `<id of the trajectory>_<number of its training sequence>`."""
    advantages: list[Advantage]
    """Advantage of each row: one number for all of its sampled tokens, or one per token of its response."""
    padding: list[int] = field(default_factory=list)
    """Positions of the rows without a name, which only pad the batch, in ascending order."""


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """One training sequence of a trajectory in one update."""

    step: int
    update: int
    row: int
    """Position of the row in the batch."""
    sequence: int
    """Number of the training sequence within the trajectory."""
    advantage: Advantage


def append_batch(trace: str | os.PathLike[str], batch: TrainedBatch, *, part_bytes: int | None = None) -> None:
    """Append one batch.

    Raises:
        OSError: the file cannot be written.
    """
    values = [value if isinstance(value, float) else pack(value) for value in batch.advantages]
    content = {"names": batch.names, "advantages": values, **({"padding": batch.padding} if batch.padding else {})}
    rows = json.dumps(content, separators=(",", ":")).encode()
    line = json.dumps({"step": batch.step, "update": batch.update, "rows": compressed(rows)}).encode() + b"\n"
    append_lines(sibling(trace, "batches"), line, part_bytes=part_bytes)


def read_batches(trace: str | os.PathLike[str]) -> Iterator[TrainedBatch]:
    """Yield the stored batches of a trace in the order of training, except incomplete lines.

    A run that resumes from a checkpoint repeats the steps after that checkpoint, so a batch may occur more than once.
    """
    for part in filter(Path.exists, parts(sibling(trace, "batches"))):
        for _, line in whole_lines(part, 0):
            try:
                record = json.loads(line)
            except ValueError:  # a killed run left the line incomplete
                continue
            rows = json.loads(decompressed(record["rows"]))
            advantages = [unpack(item) if isinstance(item, str) else item for item in rows["advantages"]]
            yield TrainedBatch(record["step"], record["update"], rows["names"], advantages, rows.get("padding", []))


def read_trained_rows(trace: str | os.PathLike[str], ids: Iterable[str] | None = None) -> dict[str, list[TrainedRow]]:
    """Return the training rows of some or all trajectories by id; a trajectory that was not trained on has no entry.

    A run that resumes from a checkpoint discards the updates after it, so only the batches before and after are used.
    """
    batches: dict[tuple[int, int], list[tuple[str, TrainedRow]]] = {}
    selected = None if ids is None else set(ids)
    for batch in read_batches(trace):
        while batches and next(reversed(batches)) >= (batch.step, batch.update):
            batches.popitem()
        rows = batches[batch.step, batch.update] = []
        for row, (name, advantage) in enumerate(zip(batch.names, batch.advantages, strict=True)):
            id, _, sequence = name.rpartition("_")
            if selected is None or id in selected:
                rows.append((id, TrainedRow(batch.step, batch.update, row, int(sequence), advantage)))
    trained: dict[str, list[TrainedRow]] = {}
    for id, own in chain.from_iterable(batches.values()):
        trained.setdefault(id, []).append(own)
    return trained


def mean_advantage(rows: Iterable[TrainedRow]) -> float | None:
    """Return the mean over a trajectory's training sequences of the mean over their trained tokens, or None."""
    lists = (row.advantage if isinstance(row.advantage, list) else [row.advantage + 0.0] for row in rows)
    values = [trained for each in lists if (trained := [own for own in each if own or math.copysign(1, own) > 0])]
    return fmean(map(fmean, values)) if values else None
