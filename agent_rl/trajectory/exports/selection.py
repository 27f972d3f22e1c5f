"""Which trajectories of a trace are exported."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.trajectory import Trajectory, trace

__all__ = ["select", "split_of", "trace_of"]

_NAMES = ("trace.jsonl", "trajectories.jsonl")


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


def split_of(trajectory: Trajectory) -> str | None:
    """The split that the trajectory's row names."""
    return trajectory.info.get("split") or trajectory.extra_info.get("split")


def trace_of(given: str | Path) -> Path:
    """The trace of a run's or an evaluation's folder, or the file itself.

    Raises:
        ConfigError: the folder has no trace.
    """
    path = Path(given).expanduser()
    candidates = [path / name for name in _NAMES] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    problem = f"the folder has no {' or '.join(_NAMES)}" if path.is_dir() else "there is no such file or folder"
    raise ConfigError(str(given), problem, "Name a run's folder, an evaluation's, or a trace")
