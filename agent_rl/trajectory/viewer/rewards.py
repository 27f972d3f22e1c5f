"""Splits a trajectory's reward into its parts, and reads the samples of the same prompt with their advantages.

A part contains a component's value, weight and contribution, and the verdicts of judges. If the trace contains the
advantages that training used, the page shows those advantages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from agent_rl.trajectory.trace import read_trained_rows
from agent_rl.trajectory.trace.batches import mean_advantage
from agent_rl.trajectory.viewer.index import TraceIndex


def read_breakdown(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reward's parts, whether the trace contains their weights, and whether they add up to the total.

    A part has `name`, `value`, `weight`, its contribution `gives` (weight times value), and the `verdicts` of judges;
    a value is None if it was not measured or is not in the trace.
    """
    score = record.get("score") or {}
    all_weights = score.get("weights")
    known = all_weights if isinstance(all_weights, dict) else {}
    weights = {name: weight for name, weight in known.items() if _is_number(weight)}
    values, verdicts, parts = components(record), dict(_verdicts(record)), list[dict[str, Any]]()
    for name in dict.fromkeys([*values, *verdicts]):
        weight = weights.get(name)
        value = None if weights and weight is None else values.get(name)  # None if the component's gate is closed
        gives = None if value is None or weight is None else weight * value
        shown = verdicts.get(name, ())
        parts.append({"name": name, "value": value, "weight": weight, "gives": gives, "verdicts": shown})
    total, gains = score.get("total"), [part["gives"] for part in parts if part["gives"] is not None]
    adds_up = _is_number(total) and math.isclose(total, math.fsum(gains), rel_tol=1e-6, abs_tol=1e-6)
    return {"parts": parts, "weighed": bool(weights), "adds_up": adds_up}


def components(record: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the components of a trajectory's reward by name."""
    return (record.get("score") or {}).get("components") or {}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _verdicts(record: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    notes = ((record.get("info") or {}).get("reward") or {}).get("notes") or {}
    for name, note in notes.items():
        lists = [note.get(key) for key in ("verdicts", "pairs")] if isinstance(note, dict) else []
        if verdicts := [item for items in lists if isinstance(items, list) for item in items if isinstance(item, dict)]:
            yield name, verdicts


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
    """Whether training used these advantages."""

    @property
    def names(self) -> list[str]:
        """Names of the components, in order."""
        return list(dict.fromkeys(name for sample in self.samples for name in components(sample.record)))

    @property
    def varying(self) -> list[str]:
        """Names of the components whose values differ between the samples; for a single sample, all components."""
        values = {name: {components(each.record).get(name) for each in self.samples} for name in self.names}
        return [name for name, distinct in values.items() if len(distinct) > 1 or len(self.samples) == 1]

    @property
    def different_first(self) -> list[Sample]:
        """The samples, alternating from both ends: the best, the worst, the second best, ..."""
        ends = zip(self.samples, reversed(self.samples), strict=True)
        return [sample for pair in ends for sample in pair][: len(self.samples)]

    def apart(self, record: Mapping[str, Any], name: str) -> float | None:
        """Return a sample's component minus the group's mean, or None if no other sample has this component."""
        known = [value for each in self.samples if (value := components(each.record).get(name)) is not None]
        value = components(record).get(name)
        return None if value is None or len(known) < 2 else value - statistics.fmean(known)


def read_group(index: TraceIndex, columns: Mapping[str, Any]) -> SampleGroup:
    """Read the group of an indexed trajectory."""
    members = [(row, index.record(row)) for row in index.group(columns)]
    trained = read_trained_rows(index.path_of(columns), [str(record.get("id")) for _, record in members])
    if trained:
        values = [mean_advantage(trained.get(str(record.get("id")), ())) for _, record in members]
    else:
        values = _grpo_advantages([row["reward"] for row, _ in members])
    samples = [Sample(row, record, value) for (row, record), value in zip(members, values, strict=True)]
    return SampleGroup(samples, bool(trained))


def _grpo_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Compute the advantages of a group as GRPO does."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [None] * len(rewards)
    mean, deviation = statistics.fmean(known), statistics.stdev(known)
    return [None if reward is None else (reward - mean) / (deviation + 1e-6) for reward in rewards]
