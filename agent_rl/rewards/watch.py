"""`ComponentWatch`: finds components that tell the trajectories of a run apart by nothing.

A component with the same value for every trajectory moves no advantage, whatever its weight: a misspelt keyword, a
judge that always says 5, a scorer that never finds the answer. One that only fails shows up in no metric at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ComponentWatch"]

STEPS = 10
"""Steps after which a component is reported."""
TRAJECTORIES = 64
"""Fewest trajectories in them."""


@dataclass
class _Seen:
    values: set[float] = field(default_factory=set)
    measured: int = 0
    failed: int = 0
    steps: int = 0


class ComponentWatch:
    """Counts the values of each component over the steps of a run.

    Args:
        names: of the components.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._seen = {name: _Seen() for name in names}

    def step(self, reported: Sequence[Mapping[str, float]], errors: Sequence[str]) -> list[str]:
        """Add a step's trajectories.

        Args:
            reported: of the scored ones, see `agent_rl.rewards.compose.extra_info`.
            errors: why the others are unscored.

        Returns:
            A sentence for each component that is found; each is found once.
        """
        found = []
        for name, seen in list(self._seen.items()):
            values = [each[name] for each in reported if name in each and each.get(f"{name}_open") != 0.0]
            failed = sum(f": {name}: " in f": {error}" or f": {name} failed at " in f": {error}" for error in errors)
            seen.values.update(values)
            seen.measured, seen.failed, seen.steps = seen.measured + len(values), seen.failed + failed, seen.steps + 1
            if len(seen.values) > 1:
                del self._seen[name]
            elif seen.steps >= STEPS and seen.measured + seen.failed >= TRAJECTORIES:
                found.append(_sentence(name, seen))
                del self._seen[name]
        return found


def _sentence(name: str, seen: _Seen) -> str:
    what = f"the reward's component {name!r}"
    if not seen.values:
        return (
            f"{what} has failed for all {seen.failed} trajectories that it was asked about, in {seen.steps} steps: "
            "see the errors in the log"
        )
    (value,) = seen.values
    return (
        f"{what} is {value:g} for all {seen.measured} trajectories of {seen.steps} steps, so it changes no advantage: "
        "look at its settings and at some trajectories in the trace"
    )
