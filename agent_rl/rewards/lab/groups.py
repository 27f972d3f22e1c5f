"""Reads stored trajectories, groups them by prompt, scores the groups, and summarizes the scores."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from agent_rl import trace
from agent_rl.concurrency import together
from agent_rl.errors import ConfigError
from agent_rl.store import Pieces
from agent_rl.trajectory import Score, StopReason, Trajectory

__all__ = [
    "GroupScorer",
    "Spread",
    "group_key",
    "grouped",
    "read_trajectories",
    "score_groups",
    "spread",
    "summary",
    "summary_table",
]


class GroupScorer(Protocol):
    """Scores the trajectories of one prompt, as `agent_rl.rewards.compose.Reward` does."""

    @property
    def needs_groups(self) -> bool:
        """Whether a trajectory's score depends on the others."""

    async def score_group(self, group: Sequence[Trajectory]) -> list[Score | Exception]:
        """A score for each, in order; an exception for one that is unscored.

        Raises:
            ConfigError: nothing can be scored.
        """


def read_trajectories(path: str | os.PathLike[str], limit: int | None = None) -> list[Trajectory]:
    """The trajectories of a file, as `agent_rl.trace.path` and `agent-rl eval` write it, but no torn last line.

    Raises:
        ConfigError: the file cannot be read, or holds none.
    """
    try:
        found = list(islice(trace.read(path, torn="skip"), limit))
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), str(error), "Name a JSONL file of trajectories") from error
    if not found:
        raise ConfigError(str(path), "there are no trajectories in it", "Name a JSONL file of trajectories")
    return found


def group_key(trajectory: Trajectory) -> tuple[str, str, str]:
    """Key of the group: the same for all trajectories of one prompt in one step.

    Training and evaluation number a prompt's trajectories after the last underscore of their id. Otherwise the row's
    index is used; a trajectory without one is a group of its own.
    """
    info = trajectory.info
    prompt, _, number = trajectory.id.rpartition("_")
    if not (prompt and number.isdigit()):
        prompt = trajectory.id if info.get("index") is None else f"index {info['index']}"
    return trajectory.data_source, str(info.get("step")), prompt


def grouped(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """The groups, in the order of their first trajectories."""
    groups: dict[Any, list[Trajectory]] = {}
    for number, trajectory in enumerate(trajectories):
        key = group_key(trajectory)
        groups.setdefault(key if key[2] else number, []).append(trajectory)
    return list(groups.values())


async def score_groups(
    groups: Sequence[Sequence[Trajectory]], scorer: GroupScorer, concurrency: int = 32, kept: Pieces | None = None
) -> list[list[Trajectory]]:
    """The groups scored, each as a whole.

    Args:
        groups: they are not changed.
        scorer: the reward.
        concurrency: groups that are scored at the same time.
        kept: the groups that were scored before, by number, which gets the others.

    Returns:
        Copies: with `score`, or without one and with `error` saying why.

    Raises:
        ConfigError: from the scorer.
    """
    free, known = asyncio.Semaphore(concurrency), Pieces() if kept is None else kept

    async def scored(number: int, group: Sequence[Trajectory]) -> list[Trajectory]:
        async with free:
            if number not in known:
                copies = [replace(trajectory, score=None, info=dict(trajectory.info)) for trajectory in group]
                results = await scorer.score_group(copies)
                known.add(number, [_change(*each) for each in zip(group, copies, results, strict=True)])
            return [_changed(*pair) for pair in zip(group, known[number], strict=True)]

    return await together([scored(number, group) for number, group in enumerate(groups)])


def _change(before: Trajectory, scored: Trajectory, result: Score | Exception) -> dict[str, Any]:
    """What scoring changes of a trajectory, as JSON data."""
    info = {key: value for key, value in scored.info.items() if before.info.get(key) != value}
    if isinstance(result, Score):
        return {"score": asdict(result), "error": None, "info": info}
    error = f"{type(result).__name__}: {result}"
    if before.error is not None and before.stop_reason in (StopReason.ERROR, StopReason.ENGINE_ERROR):
        error = before.error  # says more than that it cannot be scored
    return {"score": None, "error": error, "info": info}


def _changed(before: Trajectory, change: dict[str, Any]) -> Trajectory:
    score = change["score"] and Score(**change["score"])
    return replace(before, score=score, error=change["error"], info={**before.info, **change["info"]})


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
