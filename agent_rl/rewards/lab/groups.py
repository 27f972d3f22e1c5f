"""Reads stored trajectories, groups them by prompt, scores the groups, and summarizes the scores."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.errors import ConfigError
from agent_rl.rewards.compose import Reward
from agent_rl.trajectory import Score, StopReason, Trajectory
from agent_rl.trajectory.exports.records import select
from agent_rl.work.concurrency import together
from agent_rl.work.store import Pieces


def read_trajectories(path: Path, limit: int | None = None) -> list[Trajectory]:
    """Read trajectories from a trace (`agent_rl.trace.path`) or an `agent-rl eval` file; skip an incomplete last line.

    Raises:
        ConfigError: the file cannot be read, or contains no trajectories.
    """
    trajectories = list(select(path, limit=limit))
    if not trajectories:
        raise ConfigError(str(path), "the file contains no trajectories", "Pass a JSONL file of trajectories")
    return trajectories


def group_key(trajectory: Trajectory) -> tuple[str, str, str]:
    """Return the key of a trajectory's group, which all trajectories of one prompt in one step share.

    In training and evaluation, a trajectory's id is its prompt's id, an underscore and a number. If an id has another
    form, the key contains the row's index; a trajectory without an index forms its own group.
    """
    info = trajectory.info
    prompt, _, number = trajectory.id.rpartition("_")
    if not (prompt and number.isdigit()):
        prompt = trajectory.id if info.get("index") is None else f"index {info['index']}"
    return trajectory.data_source, str(info.get("step")), prompt


def grouped(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Group the trajectories, and return the groups in the order of their first trajectories."""
    groups: dict[Any, list[Trajectory]] = {}
    for number, trajectory in enumerate(trajectories):
        key = group_key(trajectory)
        groups.setdefault(key if key[2] else number, []).append(trajectory)
    return list(groups.values())


async def score_groups(
    groups: Sequence[Sequence[Trajectory]], scorer: Reward, concurrency: int, kept: Pieces
) -> list[list[Trajectory]]:
    """Score the trajectories of each group together.

    Args:
        groups: the groups, which are not changed.
        scorer: the reward.
        concurrency: the number of groups to score at the same time.
        kept: the results of an interrupted run, keyed by the group's index; new results are added.

    Returns:
        Copies of the trajectories, each with its `score`, or with the reason in `error` if it is unscored.

    Raises:
        ConfigError: the reward cannot score any trajectory.
    """
    free = asyncio.Semaphore(concurrency)

    async def score_one(number: int, group: Sequence[Trajectory]) -> list[Trajectory]:
        async with free:
            if number not in kept:
                copies = [replace(trajectory, score=None, info=dict(trajectory.info)) for trajectory in group]
                results = await scorer.score_group(copies)
                kept.add(number, [_change(*item) for item in zip(group, copies, results, strict=True)])
            return [_with_change(*pair) for pair in zip(group, kept[number], strict=True)]

    return await together([score_one(number, group) for number, group in enumerate(groups)])


def _change(before: Trajectory, scored: Trajectory, result: Score | Exception) -> dict[str, Any]:
    """Return the fields of a trajectory that scoring has changed, as JSON data."""
    if isinstance(result, Score):
        return {"score": asdict(result), "error": None, "info": scored.info}
    error = f"{type(result).__name__}: {result}"
    if before.error is not None and before.stop_reason in (StopReason.ERROR, StopReason.ENGINE_ERROR):
        error = before.error  # the stored error explains why the episode failed
    return {"score": None, "error": error, "info": scored.info}


def _with_change(before: Trajectory, change: dict[str, Any]) -> Trajectory:
    return replace(before, **{**change, "score": change["score"] and Score(**change["score"])})


def summary(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Return JSON data: counts, means and deviations in total and per data source, and the most frequent errors."""
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
    """Create a table with a column for all trajectories, and a column for each data source if there are several."""
    columns = {"all": summary["all"], **summary["data_sources"]}
    table = Table(title=Text(title), title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(Text(name), justify="right")
    table.add_row("reward", *[_cell(part["reward"]) for part in columns.values()])
    for name in summary["all"]["components"]:
        table.add_row(Text(f"  {name}"), *[_cell(part["components"].get(name)) for part in columns.values()])
    for name in ("scored", "unscored"):
        table.add_row(name, *[f"{part[name]:,}" for part in columns.values()])
    return table


def _part(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    scores = [trajectory.score for trajectory in trajectories if trajectory.score is not None]
    components: dict[str, list[float]] = {}
    for score in scores:
        for name, value in score.components.items():
            components.setdefault(name, []).append(value)
    return {
        "scored": len(scores),
        "unscored": len(trajectories) - len(scores),
        "reward": _spread([score.total for score in scores]) if scores else None,
        "components": {name: _spread(values) for name, values in components.items()},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "std": statistics.pstdev(values)}


def _cell(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['mean']:+.3f} ± {spread['std']:.3f}"
