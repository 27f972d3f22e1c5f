"""Which trajectories of a trace are exported."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.trace.tables import split_of

__all__ = ["select"]


def select(
    path: Path,
    *,
    split: str | None = None,
    step: int | None = None,
    min_reward: float | None = None,
    limit: int | None = None,
) -> Iterator[Trajectory]:
    """The trajectories of a trace that are exported, without a line that a killed run has torn; None: any.

    Args:
        path: the trace.
        split: the row's split.
        step: the training step.
        min_reward: the least reward; a trajectory without a score has none.
        limit: most trajectories, the first of them.

    Raises:
        ConfigError: for a file that is no trace, naming the line.
    """

    def fits(trajectory: Trajectory) -> bool:
        if split not in (None, split_of(trajectory)) or step not in (None, trajectory.info.get("step")):
            return False
        return min_reward is None or (trajectory.score is not None and trajectory.score.total >= min_reward)

    try:
        yield from islice(filter(fits, trace.read(path, torn="skip")), limit)
    except ValueError as error:
        raise ConfigError(str(path), str(error), "Name a trace, or an evaluation's trajectories.jsonl") from error
