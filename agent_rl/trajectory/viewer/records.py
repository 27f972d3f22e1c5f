"""The files that can be viewed, and their records as JSON data of one form: that of `agent_rl.trajectory`.

Read are traces of runs and evaluations (JSON lines), verl's dumps of rollouts (JSON lines), and trajectories in the
Agent Trajectory Interchange Format (ATIF, one JSON document a file).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from agent_rl.trajectory.exports.atif import from_atif
from agent_rl.trajectory.viewer.rendering import visible

__all__ = ["Source", "find_sources", "in_our_form", "newest_run"]

_IN_A_RUN = (
    "trace.jsonl",
    "trajectories.jsonl",
    "rollouts/*.jsonl",
    "validation/*.jsonl",
    "[0-9]*.jsonl",
    "*.atif.json",
    "trace-*.jsonl",
)
"""Files of a folder of a run, an evaluation, verl's dumps, or ATIF."""
_DUMPS = ("rollouts/*.jsonl", "validation/*.jsonl")


@dataclass(frozen=True)
class Source:
    """A file of records with its later parts; `name` is what pages call it."""

    path: Path
    name: str


def find_sources(given: Sequence[str]) -> list[Source]:
    """The files of folders and files that a user names.

    Raises:
        ConfigError: for one that does not exist, or a folder without such a file; naming it.
    """
    found: dict[Path, None] = {}
    for text in given:
        path = Path(text).expanduser()
        if path.is_dir():
            its = _in_folder(path)
            if not its:
                remedy = f"Name a run's folder, an evaluation's, or files; looked for {', '.join(_IN_A_RUN)}"
                raise ConfigError(text, "the folder has no trajectories", remedy)
            found |= dict.fromkeys(file.resolve() for file in its)
        elif path.is_file():
            found[path.resolve()] = None
        else:
            raise ConfigError(text, "there is no such file or folder", "Name a run's folder or a file of trajectories")
    return [Source(path, _name(path, list(found))) for path in found]


def newest_run(folder: Path) -> str:
    """The folder of the run that was started last.

    Args:
        folder: of runs.

    Raises:
        ConfigError: the folder has no run.
    """
    begun = sorted(folder.glob("*/run.json"), key=lambda file: file.stat().st_mtime)
    if not begun:
        remedy = "Name a run's folder or a file of trajectories, or train first: agent-rl train RECIPE"
        raise ConfigError("RUN", f"no run is named, and there is no run below {folder.absolute()}", remedy)
    return str(begun[-1].parent)


def _in_folder(folder: Path) -> list[Path]:
    files = {pattern: trace.firsts(sorted(folder.glob(pattern))) for pattern in _IN_A_RUN}
    if files["trace.jsonl"]:  # verl's dumps say the same again
        files = {pattern: its for pattern, its in files.items() if pattern not in _DUMPS}
    found = [file for its in files.values() for file in its]
    # a run that has begun gets its trace soon
    return found or ([folder / _IN_A_RUN[0]] if (folder / "run.json").exists() else [])


def _name(path: Path, others: Sequence[Path]) -> str:
    """The shortest end of a path, with its folder, that no other one has."""
    for count in range(2, len(path.parts)):
        end = path.parts[-count:]
        if not any(other.parts[-count:] == end for other in others if other != path):
            return visible("/".join(end))
    return visible(path)


def in_our_form(record: Any) -> dict[str, Any]:
    """A record as JSON data of a `Trajectory`; what the record lacks is absent.

    Raises:
        ValueError: for a record of no known form.
    """
    if isinstance(record, dict):
        if "turns" in record and "stop_reason" in record:
            return record
        if "input" in record and "output" in record:
            return _of_dump(record)
        if "steps" in record and str(record.get("schema_version", "")).startswith("ATIF"):
            return from_atif(record)
    raise ValueError("neither a trajectory of agent_rl, nor a line of verl's dumps, nor ATIF")


def _of_dump(record: dict[str, Any]) -> dict[str, Any]:
    """A line of `trainer.rollout_data_dir`: text, divided at roles on lines of their own."""
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
