"""Stores a trajectory whose scoring raised an exception in the user's code, so that it can be scored again.

One file contains the trajectory and its row, and another file contains the configuration. The error shows the command
that reads both files.
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


def repeatable(
    error: UserCodeError, trajectory: Trajectory, folder: str | os.PathLike[str], config: Mapping[str, Any]
) -> UserCodeError:
    """Store the trajectory and the configuration, and return the error with the command that repeats the call.

    Args:
        error: the exception raised while the trajectory was scored.
        trajectory: the trajectory, which is appended to its prompt's file, so that all samples are scored together.
        folder: the folder for both files, which is created if missing.
        config: the sections of the configuration that the command needs: `agent_rl`, `data` and `reward`.
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
    repeatable_error = UserCodeError(error.what, error.place, error.problem, error.trace, remedy)
    repeatable_error.__cause__ = error.__cause__
    return repeatable_error
