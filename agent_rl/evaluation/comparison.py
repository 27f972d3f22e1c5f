"""Compares two evaluations, or two steps of runs, on the rows that both have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_rl.errors import ConfigError
from agent_rl.trajectory.estimates import Change, estimate_change
from agent_rl.trajectory.trace.tables import read_trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Side", "compare", "sides_of"]

ROW = ["data_source", "index"]
"""Columns that say which row of the data a trajectory is of."""
MEASURES = {
    "correctness": "reward.correctness",
    "reward": "reward",
    "tool calls": "calls",
    "turns": "turns",
    "response tokens": "response_tokens",
}
"""What is compared, with its column."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its name, and its trajectories."""

    name: str
    trajectories: pd.DataFrame


def sides_of(places: list[str]) -> tuple[Side, Side]:
    """The two sides that a command line names.

    Args:
        places: folders of runs or evaluations, or traces; of a run `RUN@STEP` is one step. One run without a step: its
            first step against its last, of validations where there are two.

    Raises:
        ConfigError: for a number of places, a place or a step that cannot be compared.
    """
    if len(places) == 1 and "@" not in places[0]:
        found = _read(places[0])
        steps = _steps(found)
        if len(steps) < 2:
            problem = f"its trajectories are of {len(steps)} step{'s' * (len(steps) != 1)}"
            raise ConfigError(places[0], problem, "Name two runs or evaluations")
        return _step(places[0], found, steps[0]), _step(places[0], found, steps[-1])
    if len(places) != 2:
        raise ConfigError("A B", f"{len(places)} are named", "Name two runs or evaluations, or one run")
    one, other = map(_side, places)
    return one, other


def compare(one: Side, other: Side) -> dict[str, tuple[float, float, Change]]:
    """Each measure that both sides have: the means of both over the shared rows, and the change.

    Raises:
        ConfigError: they share no row.
    """
    means = [each.trajectories.groupby(ROW, dropna=False)[list(MEASURES.values())].mean() for each in (one, other)]
    both = means[0].merge(means[1], left_index=True, right_index=True, suffixes=(" one", " other"))
    if both.empty:
        remedy = "Evaluate both on the same data: agent-rl eval RUN"
        raise ConfigError("A B", f"{one.name} and {other.name} have no row in common", remedy)
    found = {}
    for name, column in MEASURES.items():
        pairs = both[[f"{column} one", f"{column} other"]].dropna()
        if len(pairs):
            values = [(float(a), float(b)) for a, b in pairs.itertuples(index=False)]
            found[name] = (*(float(mean) for mean in pairs.mean()), estimate_change(values))
    return found  # type: ignore[return-value]


def _side(place: str) -> Side:
    path, _, step = place.partition("@")
    found = _read(path)
    if step:
        if not step.isdigit() or int(step) not in set(found["step"].dropna()):
            steps = sorted(int(each) for each in set(found["step"].dropna()))
            known = f"Its steps are {steps[0]} to {steps[-1]}" if steps else "It has no steps"
            raise ConfigError(place, f"there is no step {step}", known)
        return _step(path, found, int(step))
    steps = _steps(found)
    return _step(path, found, steps[-1]) if steps else Side(path, found)


def _step(path: str, found: pd.DataFrame, step: int) -> Side:
    chosen = found[found["step"] == step]
    if "test" in set(chosen["split"]):  # a validation in a step of training
        chosen = chosen[chosen["split"] == "test"]
    return Side(f"{path}@{step}", chosen)


def _steps(found: pd.DataFrame) -> list[int]:
    """The steps that have validations, or all where fewer than two have."""
    held_out = found[found["split"] == "test"]
    steps = [sorted({int(step) for step in each["step"].dropna()}) for each in (held_out, found)]
    return steps[0] if len(steps[0]) > 1 else steps[1]


def _read(path: str) -> Any:
    found = read_trace(Path(path)).trajectories
    for column in MEASURES.values():
        if column not in found:
            found[column] = None
    found[list(MEASURES.values())] = found[list(MEASURES.values())].astype(float)
    return found
