"""Reads the files that a run writes in addition to its trace."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError, reason_of
from agent_rl.work.parts import whole_lines


@dataclass(frozen=True)
class RunState:
    """The progress of a run, and how it ended.

    Attributes:
        status: `running`, `trained` (to the end), `stopped` (early, and saved), `aborted` (by a signal), `failed`,
            `killed` (its process exited without recording an end), or `unknown` (the run's machine cannot be queried,
            or the run used a version that records no end).
        step: the last logged step, or None if no step was logged.
        time: the time of the end, or of the last logged step or line if the end is unknown, in ISO 8601 format.
        error: the error with which the run failed.
    """

    status: str
    step: int | None = None
    time: str = ""
    error: str = ""

    def __str__(self) -> str:
        after = "before the first step" if self.step is None else f"after step {self.step}"
        text = f"running, {after}" if self.status == "running" else f"{self.status} {after}"
        return f"{text}, {self.time[:16].replace('T', ' ')}" if self.time else text


def this_process() -> dict[str, Any]:
    """Return the entry for the training process in `run.json`; its creation time reveals a reused process id."""
    import psutil

    return {"host": platform.node(), "pid": os.getpid(), "created": psutil.Process().create_time()}


def read_record(folder: Path, key: str, remedy: str) -> dict[str, Any]:
    """Return the content of a run's `run.json`.

    Args:
        folder: the run's folder.
        key: the key or option that names the folder, for the error message.
        remedy: the remedy that the error message suggests.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = folder / "run.json"
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError) as error:
        raise ConfigError(key, f"{file} cannot be read ({reason_of(error)})", remedy) from error


def run_state(folder: Path, about: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> RunState:
    """Return the state of a run.

    Args:
        folder: the run's folder.
        about: the content of `run.json`; empty if there is no such file.
        steps: the run's metrics, from `read_metrics`.
    """
    step = steps[-1]["step"] if steps else None
    if end := about.get("end"):
        return RunState(end["status"], step, end["time"], end.get("error") or "")
    times = [file.stat().st_mtime for name in ("metrics.jsonl", "train.log") if (file := folder / name).is_file()]
    moment = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(max(times))) if times else ""
    return RunState(_status(about.get("process")), step, moment)


def _status(process: Mapping[str, Any] | None) -> str:
    """Return the status of a run whose end was not recorded."""
    import psutil

    if process is None or process["host"] != platform.node():
        return "unknown"
    try:
        same = psutil.Process(process["pid"]).create_time() == process["created"]
    except psutil.Error:
        same = False
    return "running" if same else "killed"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of each step, including its number `step`; step 0 is the validation before training."""
    lines = whole_lines(folder / "metrics.jsonl", 0)  # without a line that the run is still writing
    return [{"step": record["step"], **record["data"]} for record in (json.loads(line) for _, line in lines)]


def leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted key of nested mappings with its value; lists are not traversed."""
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    else:
        yield path, plain
