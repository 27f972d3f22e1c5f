"""The samples of one prompt with their advantages: those that were trained with where the trace has them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_rl.trace import TrainedRow, read_trained_rows
from agent_rl.viewer.index import TraceIndex

__all__ = ["Sample", "SampleGroup", "mean_advantage", "read_group"]

TRAINED = "as it was trained with"
COMPUTED = "its reward's distance from the group's mean in standard deviations: the trace has none of the training"


@dataclass(frozen=True)
class Sample:
    """One sample of a group: its columns in the index, the trajectory as JSON data, and its advantage."""

    row: Mapping[str, Any]
    record: Mapping[str, Any]
    advantage: float | None


@dataclass(frozen=True)
class SampleGroup:
    """The samples of one prompt in one step of a file."""

    samples: Sequence[Sample]
    trained: bool
    """Whether the advantages are those of the training; else they are computed as GRPO does."""

    @property
    def names(self) -> list[str]:
        """Of the components, in their order."""
        return list(dict.fromkeys(name for sample in self.samples for name in components(sample.record)))

    @property
    def source(self) -> str:
        """Where the advantages are from, in words."""
        return TRAINED if self.trained else COMPUTED

    def sample(self, number: int) -> Sample | None:
        """The sample with this number in the index."""
        return next((sample for sample in self.samples if sample.row["id"] == number), None)

    def apart(self, sample: Sample, name: str) -> float | None:
        """How far a sample's component lies from the mean of its group; None: there is nothing to compare with."""
        values = [components(each.record).get(name) for each in self.samples]
        known = [value for value in values if value is not None]
        value = components(sample.record).get(name)
        return None if value is None or len(known) < 2 else value - statistics.fmean(known)


def read_group(index: TraceIndex, columns: Mapping[str, Any]) -> SampleGroup:
    """The group that a trajectory of the index belongs to."""
    found = [(row, index.record(row)) for row in index.group(columns)]
    trained = read_trained_rows(index.path_of(columns), [str(record.get("id")) for _, record in found])
    if trained:
        values = [mean_advantage(trained.get(str(record.get("id")), ())) for _, record in found]
    else:
        values = _computed([row["reward"] for row, _ in found])
    return SampleGroup([Sample(*each, value) for each, value in zip(found, values, strict=True)], bool(trained))


def components(record: Mapping[str, Any]) -> Mapping[str, float]:
    """The components of a trajectory's reward by name."""
    return (record.get("score") or {}).get("components") or {}


def mean_advantage(rows: Sequence[TrainedRow]) -> float | None:
    """One number for what a trajectory was trained with: the mean over its sequences and their tokens."""
    values = [row.advantage if isinstance(row.advantage, float) else _mean(row.advantage) for row in rows]
    return _mean([value for value in values if value is not None])


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _computed(rewards: Sequence[float | None]) -> list[float | None]:
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [None] * len(rewards)
    mean, deviation = statistics.fmean(known), statistics.stdev(known)
    return [None if reward is None else (reward - mean) / (deviation + 1e-6) for reward in rewards]
