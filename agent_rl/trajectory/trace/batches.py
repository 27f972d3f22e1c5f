"""The batches that were trained on, in `trace.batches.jsonl` beside a trace: their rows in order, with the advantages.

A line is `{"step": ..., "update": ..., "rows": ...}`, of which the rows are base64 of zlib of JSON: names of training
sequences, and for each its advantage, or where the tokens of a sequence differ in it, their advantages packed as
`agent_rl.trace.tokens` says.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent_rl.trajectory.trace.tokens import LEVEL, pack, unpack
from agent_rl.work.parts import append_lines, beside, parts

__all__ = ["TrainedBatch", "TrainedRow", "append_batch", "read_batches", "read_trained_rows"]

Advantage = float | list[float]


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """What one update was computed on."""

    step: int
    """The training step."""
    update: int
    """Number of the update within the step, from 0."""
    names: list[str]
    """Of each row, `<id of the trajectory>_<number of its training sequence>`."""
    advantages: list[Advantage]
    """Of each row: one number for all of its sampled tokens, or one for each token of its response."""


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """One training sequence of a trajectory in one update."""

    step: int
    update: int
    row: int
    """Where it stood in the batch."""
    sequence: int
    """Which of the trajectory's training sequences."""
    advantage: Advantage


def append_batch(trace: str | os.PathLike[str], batch: TrainedBatch, *, part_bytes: int | None = None) -> None:
    """Append one batch.

    Raises:
        OSError: when the file cannot be written.
    """
    values = [each if isinstance(each, float) else pack(each) for each in batch.advantages]
    rows = json.dumps({"names": batch.names, "advantages": values}, separators=(",", ":")).encode()
    packed = base64.b64encode(zlib.compress(rows, LEVEL)).decode()
    line = json.dumps({"step": batch.step, "update": batch.update, "rows": packed}).encode() + b"\n"
    append_lines(beside(trace, "batches"), line, part_bytes=part_bytes)


def read_batches(trace: str | os.PathLike[str]) -> Iterator[TrainedBatch]:
    """The batches of a trace in the order of training; none where none were kept. Torn lines are left out.

    A run that resumes from a checkpoint repeats the steps after it: the last batch of a step is the one that counts.
    """
    for part in parts(beside(trace, "batches")):
        if not part.exists():
            return
        with open(part, "rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:  # of a killed run
                    continue
                rows = json.loads(zlib.decompress(base64.b64decode(record["rows"])))
                advantages = [unpack(each) if isinstance(each, str) else each for each in rows["advantages"]]
                yield TrainedBatch(record["step"], record["update"], rows["names"], advantages)


def read_trained_rows(trace: str | os.PathLike[str], ids: Iterable[str] | None = None) -> dict[str, list[TrainedRow]]:
    """Where some trajectories, or all, were trained on, by their ids; no entry for one that was not."""
    found: dict[str, list[TrainedRow]] = {}
    wanted = None if ids is None else set(ids)
    for batch in read_batches(trace):
        for row, (name, advantage) in enumerate(zip(batch.names, batch.advantages, strict=True)):
            id, _, sequence = name.rpartition("_")
            if wanted is None or id in wanted:
                found.setdefault(id, []).append(TrainedRow(batch.step, batch.update, row, int(sequence), advantage))
    return found
