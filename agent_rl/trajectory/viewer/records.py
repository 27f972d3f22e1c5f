"""Finds the files to view, and converts their records to the JSON data of a `Trajectory`.

The files are traces of runs and evaluations (JSON lines), verl's rollout dumps (JSON lines), and trajectories in the
Agent Trajectory Interchange Format (ATIF, one JSON document per file).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from agent_rl.trajectory.exports.atif import from_atif
from agent_rl.trajectory.viewer.rendering import visible

_DUMPS = ("rollouts/*.jsonl", "validation/*.jsonl")
_IN_A_RUN = ("trace.jsonl", "trajectories.jsonl", *_DUMPS, "[0-9]*.jsonl", "*.atif.json", "trace-*.jsonl")
"""Glob patterns for record files in the folders of runs, evaluations, verl's dumps and ATIF documents."""


@dataclass(frozen=True)
class Source:
    """A file of records, including its later parts; pages show its `name`."""

    path: Path
    name: str


def find_sources(places: Sequence[str]) -> list[Source]:
    """Return the record files at the given paths; a folder stands for all record files in it.

    Raises:
        ConfigError: a path does not exist, or a folder contains no record file; the error names the path.
    """
    files: dict[Path, None] = {}
    for text in places:
        path = Path(text).expanduser()
        if path.is_dir():
            records = _in_folder(path)
            if not records:
                remedy = f"Pass the folder of a run or an evaluation, or files; looked for {', '.join(_IN_A_RUN)}"
                raise ConfigError(text, "the folder contains no trajectories", remedy)
            files |= dict.fromkeys(file.resolve() for file in records)
        elif path.is_file():
            files[path.resolve()] = None
        else:
            raise ConfigError(text, "there is no such file or folder", "Pass a run's folder or a file of trajectories")
    return [Source(path, _name(path, list(files))) for path in files]


def newest_run(folder: Path) -> str:
    """Return the folder of the run that was started or resumed last.

    Args:
        folder: a folder of runs.

    Raises:
        ConfigError: the folder contains no run.
    """
    runs = sorted(folder.glob("*/run.json"), key=_started)
    if not runs:
        remedy = "Pass a run's folder or a file of trajectories, or train first: agent-rl train RECIPE"
        raise ConfigError("RUN", f"no run was given, and there is no run under {folder.absolute()}", remedy)
    return str(runs[-1].parent)


def _started(file: Path) -> float:
    """Return the time of a run's last start, which is earlier than the time of its file if the run has ended since."""
    try:
        started = str(json.loads(file.read_bytes())["started"][-1])
        return datetime.strptime(started, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (ValueError, KeyError, TypeError, IndexError):  # the file does not come from agent_rl
        return file.stat().st_mtime


def _in_folder(folder: Path) -> list[Path]:
    files = {pattern: trace.firsts(sorted(folder.glob(pattern))) for pattern in _IN_A_RUN}
    if files["trace.jsonl"]:  # verl's dumps contain the same trajectories
        files = {pattern: paths for pattern, paths in files.items() if pattern not in _DUMPS}
    records = [file for paths in files.values() for file in paths]
    # a run that has just started has no trace yet
    return records or ([folder / _IN_A_RUN[0]] if (folder / "run.json").exists() else [])


def _name(path: Path, others: Sequence[Path]) -> str:
    """Return the shortest end of a path that includes a folder and is not the end of any other path."""
    for count in range(2, len(path.parts)):
        end = path.parts[-count:]
        if not any(other.parts[-count:] == end for other in others if other != path):
            return visible("/".join(end))
    return visible(path)


def in_our_form(record: Any) -> dict[str, Any]:
    """Convert a record to JSON data of a `Trajectory`; keys that the record lacks stay absent.

    Raises:
        ValueError: the record has an unknown format.
    """
    if isinstance(record, dict):
        if "turns" in record and "stop_reason" in record:
            return record
        if "input" in record and "output" in record:
            return _of_dump(record)
        if "steps" in record and str(record.get("schema_version", "")).startswith("ATIF"):
            return from_atif(record)
    raise ValueError("the record is not a trajectory in agent_rl's format, a line of verl's dumps, or ATIF")


def _of_dump(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of `trainer.rollout_data_dir`, in which every message starts with a line for its role."""
    prompt = [{"role": role, "content": text} for role, text in trace.segments(str(record["input"])) if text]
    turns: list[dict[str, Any]] = []
    for role, text in trace.segments(str(record["output"]), "assistant"):
        if role == "assistant" or not turns:
            turns.append({"text": text})
        else:
            turns[-1]["observation"] = "\n".join(filter(None, [turns[-1].get("observation"), text]))
    numbers = {key: value for key, value in record.items() if isinstance(value, int | float) and key != "step"}
    reason = next(
        (key.removeprefix("stop_") for key, value in numbers.items() if key.startswith("stop_") and value), ""
    )
    return {
        "id": str(record.get("uid", "")),
        "prompt": prompt,
        "turns": turns,
        "stop_reason": reason,
        "data_source": str(record.get("data_source", "")),
        "ground_truth": record.get("gts"),
        "score": {
            "total": float(record.get("score", 0.0)),
            "components": {"acc": numbers["acc"]} if "acc" in numbers else {},
        },
        "info": {"step": record.get("step"), "reported": numbers},
    }
