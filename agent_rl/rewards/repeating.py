"""Stores what is needed to reproduce the scoring of a trajectory for which the user's code raised.

This is a file with the trajectory and its row, a file with the configuration, and the command that reads both.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Trajectory, trace

__all__ = ["repeatable"]


def repeatable(
    error: UserCodeError, trajectory: Trajectory, folder: str | os.PathLike[str], config: Mapping[str, Any]
) -> UserCodeError:
    """Add the command that repeats the call to an error.

    Args:
        error: the exception raised while the trajectory was scored.
        trajectory: stored in a file that the trajectories of one prompt share, so that they are scored together again.
        folder: folder of both files; created if missing.
        config: the sections that the command needs: `agent_rl`, `data` and `reward`.
    """
    name = re.sub(r"[^\w.-]", "_", trajectory.id.rpartition("_")[0] or trajectory.id or "trajectory")
    file, settings = Path(folder) / f"{name}.jsonl", Path(folder) / f"{name}.yaml"
    try:
        trace.append(file, trajectory)
        settings.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
    except OSError as problem:
        command = f"The trajectory could not be stored: {problem}"
    else:
        words = ["agent-rl", "reward", "score", str(file), "--config", str(settings)]
        command = f"Repeat the call with: {shlex.join(words)}"
    remedy = ". ".join(filter(None, [error.remedy, command]))
    made = UserCodeError(error.what, error.place, error.problem, error.trace, remedy)
    made.__cause__ = error.__cause__
    return made
