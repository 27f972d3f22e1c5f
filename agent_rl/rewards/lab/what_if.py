"""How other reward settings change the advantages of stored groups.

The advantage is GRPO's: the reward minus the group's mean, over the group's standard deviation. A group without
variance has no gradient, and `algorithm.filter_groups` drops it. Unscored trajectories are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.errors import ConfigError, UnscoredError, did_you_mean
from agent_rl.rewards.lab.groups import Spread, spread
from agent_rl.trajectory import Score, Trajectory

__all__ = ["Flip", "GroupCounts", "WhatIf", "advantages", "reweighed", "what_if", "what_if_table"]

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
class GroupCounts:
    """Counts of groups for one of the two rewards."""

    without_variance: int = 0
    """Groups of two or more with equal rewards."""
    filtered: int = 0
    """Groups of two or more that `algorithm.filter_groups` drops: their metric is the same for all."""


@dataclass(slots=True)
class WhatIf:
    """How the advantages of stored groups change."""

    trajectories: int
    unscored: tuple[int, int]
    groups: int
    """Groups with two or more trajectories that have both rewards."""
    compared: int
    """The trajectories in them."""
    before: GroupCounts = field(default_factory=GroupCounts)
    after: GroupCounts = field(default_factory=GroupCounts)
    flips: list[Flip] = field(default_factory=list)
    """Trajectories with a change of sign, the largest change first."""
    gained: int = 0
    """Trajectories that had no advantage and get one."""
    lost: int = 0
    """Trajectories that had one and get none."""
    reward: tuple[Spread | None, Spread | None] = (None, None)
    components: dict[str, tuple[Spread | None, Spread | None]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)


def what_if(
    before: Sequence[Sequence[Trajectory]], after: Sequence[Sequence[Trajectory]], metric: str = "reward"
) -> WhatIf:
    """Compare the scores of the same groups.

    Args:
        before: groups with their stored scores.
        after: the same with new ones.
        metric: `algorithm.filter_groups.metric`: `reward`, `acc` (correctness), or a component.

    Raises:
        ConfigError: no score has the metric.
    """
    old, new = ([trajectory.score for group in groups for trajectory in group] for groups in (before, after))
    names = _names([*old, *new])
    if metric not in ("reward", "acc", *names):
        raise ConfigError("--metric", f"no score has {metric!r}", did_you_mean(metric, ("reward", "acc", *names)))
    report = WhatIf(
        trajectories=len(old),
        unscored=(old.count(None), new.count(None)),
        groups=0,
        compared=0,
        reward=(spread(old), spread(new)),
        components={name: (spread(old, name), spread(new, name)) for name in names},
    )
    for group_before, group_after in zip(before, after, strict=True):
        pairs = [(a, b) for a, b in zip(group_before, group_after, strict=True) if a.score and b.score]
        if len(pairs) < 2:
            continue
        report.groups += 1
        report.compared += len(pairs)
        scores = [[trajectory.score for trajectory in side if trajectory.score] for side in zip(*pairs, strict=True)]
        for counts, side in zip((report.before, report.after), scores, strict=True):
            counts.without_variance += _same([score.total for score in side])
            counts.filtered += _same([_metric(score, metric) for score in side])
        _compare(report, [trajectory for trajectory, _ in pairs], *scores)
    report.flips.sort(key=lambda flip: -abs(flip.advantage[1] - flip.advantage[0]))
    return report


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
    if _same(rewards):
        return [0.0] * len(rewards)
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (std + EPSILON) for reward in rewards]


def what_if_table(report: WhatIf, title: str) -> Table:
    """A table of the stored and the new rewards and counts."""
    shown = Table(title=Text(title), title_justify="left")
    for name in ("", "stored", "new"):
        shown.add_column(name, justify="right" if name else "left")
    before, after = report.before, report.after
    spreads = {"reward": report.reward, **{f"  {name}": pair for name, pair in report.components.items()}}
    counts: dict[str, Sequence[int]] = {
        "unscored": report.unscored,
        f"without variance, of {report.groups:,} groups": (before.without_variance, after.without_variance),
        "dropped by filter_groups": (before.filtered, after.filtered),
    }
    new = {
        f"sign flips, of {report.compared:,} trajectories": len(report.flips),
        "advantages gained": report.gained,
        "advantages lost": report.lost,
    }
    for name, pair in spreads.items():
        shown.add_row(Text(name), *[str(found or "-") for found in pair])
    for name, both in counts.items():
        shown.add_row(name, *[f"{count:,}" for count in both])
    shown.add_section()
    for name, count in new.items():
        shown.add_row(name, "", f"{count:,}")
    return shown


def _compare(report: WhatIf, group: Sequence[Trajectory], old: Sequence[Score], new: Sequence[Score]) -> None:
    both = zip(*(advantages([score.total for score in side]) for side in (old, new)), strict=True)
    for trajectory, a, b, (was, would_be) in zip(group, old, new, both, strict=True):
        signs = _sign(was), _sign(would_be)
        report.gained += signs[0] == 0 and signs[1] != 0
        report.lost += signs[0] != 0 and signs[1] == 0
        if signs[0] * signs[1] < 0:
            flip = Flip(trajectory.id, trajectory.data_source, (a.total, b.total), (was, would_be))
            report.flips.append(flip)


def _metric(score: Score, metric: str) -> float:
    if metric == "reward":
        return score.total
    return score.components.get("correctness" if metric == "acc" else metric, 0.0)


def _same(values: Sequence[float]) -> bool:
    return len(values) > 1 and max(values) == min(values)


def _sign(advantage: float) -> int:
    return 0 if abs(advantage) < EPSILON else 1 if advantage > 0 else -1


def _names(scores: Sequence[Score | None]) -> list[str]:
    return list(dict.fromkeys(name for score in scores if score for name in score.components))
