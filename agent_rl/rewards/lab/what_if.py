"""How other reward settings change the advantages of stored groups.

The advantage is GRPO's: the reward minus the group's mean, over the group's standard deviation. A group without
variance has no gradient. Unscored trajectories are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.errors import UnscoredError
from agent_rl.rewards.lab.groups import Spread, spread
from agent_rl.trajectory import Score, Trajectory

__all__ = ["Flip", "WhatIf", "advantages", "reweighed", "what_if", "what_if_table"]

EPSILON = 1e-6
"""Added to the standard deviation, as verl does; a smaller advantage counts as none."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A trajectory with an advantage that changes its sign."""

    trajectory: str
    data_source: str
    reward: tuple[float, float]
    """Stored and new, as in all pairs of this module."""
    advantage: tuple[float, float]


@dataclass(slots=True)
class WhatIf:
    """How the advantages of stored groups change."""

    trajectories: int
    unscored: tuple[int, int]
    reward: tuple[Spread | None, Spread | None]
    components: dict[str, tuple[Spread | None, Spread | None]]
    groups: int = 0
    """Groups with two or more trajectories that have both rewards."""
    compared: int = 0
    """The trajectories in them."""
    without_variance: tuple[int, int] = (0, 0)
    """Of these groups, those with equal rewards."""
    flips: list[Flip] = field(default_factory=list)
    """Trajectories with a change of sign, the largest change first."""

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)


def what_if(before: Sequence[Sequence[Trajectory]], after: Sequence[Sequence[Trajectory]]) -> WhatIf:
    """Compare the scores of the same groups.

    Args:
        before: groups with their stored scores.
        after: the same with new ones.
    """
    old, new = ([trajectory.score for group in groups for trajectory in group] for groups in (before, after))
    names = dict.fromkeys(name for score in [*old, *new] if score for name in score.components)
    report = WhatIf(
        trajectories=len(old),
        unscored=(old.count(None), new.count(None)),
        reward=(spread(old), spread(new)),
        components={name: (spread(old, name), spread(new, name)) for name in names},
    )
    for group in zip(before, after, strict=True):
        pairs = [(a, b, a.score, b.score) for a, b in zip(*group, strict=True)]
        scored = [(a, was.total, now.total) for a, _, was, now in pairs if was and now]
        if len(scored) > 1:
            _compare(report, *zip(*scored, strict=True))
    report.flips.sort(key=lambda flip: -abs(flip.advantage[1] - flip.advantage[0]))
    return report


def _compare(report: WhatIf, group: Sequence[Trajectory], stored: Sequence[float], new: Sequence[float]) -> None:
    """Add a group with its stored and new rewards."""
    was, would_be = advantages(stored), advantages(new)
    report.groups += 1
    report.compared += len(group)
    before, after = report.without_variance
    report.without_variance = before + (not any(was)), after + (not any(would_be))
    for trajectory, reward, pair in zip(
        group, zip(stored, new, strict=True), zip(was, would_be, strict=True), strict=True
    ):
        if min(pair) <= -EPSILON and max(pair) >= EPSILON:
            report.flips.append(Flip(trajectory.id, trajectory.data_source, reward, pair))


async def reweighed(
    groups: Sequence[Sequence[Trajectory]], reweigh: Callable[[Trajectory], Awaitable[Score]]
) -> list[list[Trajectory]]:
    """The groups with new scores from their stored values.

    Args:
        groups: they are not changed.
        reweigh: a trajectory's new score, or `UnscoredError`: `agent_rl.rewards.compose.Reward.reweigh`.
    """

    async def one(trajectory: Trajectory) -> Trajectory:
        try:
            return replace(trajectory, score=await reweigh(trajectory))
        except UnscoredError as error:
            return replace(trajectory, score=None, error=trajectory.error or str(error))

    return [[await one(trajectory) for trajectory in group] for group in groups]


def advantages(rewards: Sequence[float]) -> list[float]:
    """GRPO's advantages of one group of two or more; exactly 0 if all rewards are equal."""
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (std + EPSILON) for reward in rewards]


def what_if_table(report: WhatIf, title: str) -> Table:
    """A table of the stored and the new rewards and counts."""
    shown = Table(title=Text(title), title_justify="left")
    for name in ("", "stored", "new"):
        shown.add_column(name, justify="right" if name else "left")
    for name, pair in {"reward": report.reward, **report.components}.items():
        shown.add_row(Text(name if name == "reward" else f"  {name}"), *[str(found or "-") for found in pair])
    shown.add_row("unscored", *[f"{count:,}" for count in report.unscored])
    shown.add_row(
        f"without variance, of {report.groups:,} groups", *[f"{count:,}" for count in report.without_variance]
    )
    shown.add_section()
    shown.add_row(f"sign flips, of {report.compared:,} trajectories", "", f"{len(report.flips):,}")
    return shown
