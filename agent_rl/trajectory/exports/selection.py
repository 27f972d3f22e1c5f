"""`select` yields the trajectories of a trace that match filters."""

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
    """Yield the matching trajectories of a trace, without the incomplete lines of a killed run.

    Args:
        path: the trace.
        split: the split of the row; None: any split.
        step: the training step; None: any step.
        min_reward: minimum reward, which excludes trajectories without a score; None: any.
        limit: maximum number of trajectories; None: all.

    Raises:
        ConfigError: the file is not a trace; the error names the line.
    """

    def matches(trajectory: Trajectory) -> bool:
        if split not in (None, split_of(trajectory)) or step not in (None, trajectory.info.get("step")):
            return False
        return min_reward is None or (trajectory.score is not None and trajectory.score.total >= min_reward)

    try:
        yield from islice(filter(matches, trace.read(path, torn="skip")), limit)
    except ValueError as error:
        raise ConfigError(str(path), str(error), "Pass the trace of a run or an evaluation") from error
