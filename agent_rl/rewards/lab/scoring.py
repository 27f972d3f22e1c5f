"""Summaries of scored trajectories: means, standard deviations, and errors."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.trajectory import Score, Trajectory

__all__ = ["Spread", "spread", "summary", "summary_table"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over trajectories."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.std:.3f}"


def spread(scores: Sequence[Score | None], name: str | None = None) -> Spread | None:
    """Mean and standard deviation of the totals, or of the component `name`; None if no score has it."""
    known = [score for score in scores if score is not None]
    totals = [score.total for score in known]
    values = totals if name is None else [score.components[name] for score in known if name in score.components]
    return Spread(statistics.fmean(values), statistics.pstdev(values)) if values else None


def summary(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """JSON data: counts, means and standard deviations for `all` and each data source, and the most frequent errors."""
    sources: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        sources.setdefault(trajectory.data_source, []).append(trajectory)
    errors = Counter(trajectory.error for trajectory in trajectories if trajectory.score is None)
    return {
        "all": _part(trajectories),
        "data_sources": {source: _part(part) for source, part in sources.items()} if len(sources) > 1 else {},
        "errors": {str(error): count for error, count in errors.most_common(10)},
    }


def summary_table(summary: dict[str, Any], title: str) -> Table:
    """A table with a column for all trajectories, and one for each data source if there are several."""
    columns = {"all": summary["all"], **summary["data_sources"]}
    shown = Table(title=Text(title), title_justify="left")
    shown.add_column("")
    for name in columns:
        shown.add_column(Text(name), justify="right")
    shown.add_row("reward", *[_cell(part["reward"]) for part in columns.values()])
    for name in summary["all"]["components"]:
        shown.add_row(Text(f"  {name}"), *[_cell(part["components"].get(name)) for part in columns.values()])
    for name in ("scored", "unscored"):
        shown.add_row(name, *[f"{part[name]:,}" for part in columns.values()])
    return shown


def _part(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    scores = [trajectory.score for trajectory in trajectories if trajectory.score is not None]
    names = dict.fromkeys(name for score in scores for name in score.components)
    total = spread(scores)
    return {
        "scored": len(scores),
        "unscored": len(trajectories) - len(scores),
        "reward": total and asdict(total),
        "components": {name: asdict(found) for name in names if (found := spread(scores, name))},
    }


def _cell(found: dict[str, float] | None) -> str:
    return "-" if found is None else str(Spread(**found))
