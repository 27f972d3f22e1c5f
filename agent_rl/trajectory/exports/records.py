"""Converts each trajectory to one flat record, for tables (pandas, DuckDB, a spreadsheet)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace import TrainedRow, image_names
from agent_rl.trajectory.trace.tables import trajectory_row

__all__ = ["flat_record", "write_csv", "write_jsonl"]

_FIRST = ("id", "group", "step", "split", "index", "data_source", "agent", "stop_reason", "error", "reward")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet evaluate a cell as a formula."""


def flat_record(trajectory: Trajectory, trained: Sequence[TrainedRow] = ()) -> dict[str, Any]:
    """Return the columns of a trajectory; components are `reward.<name>`, images are names in the image folder.

    Args:
        trajectory: a trajectory of a trace.
        trained: the trajectory's rows in training batches.
    """
    row = trajectory_row(trajectory, trained)
    questions = [message.content for message in trajectory.prompt if message.role == "user"]
    return {
        **{name: row[name] for name in _FIRST},
        **{name: value for name, value in row.items() if name.startswith("reward.")},
        "trained_in_step": trained[-1].step if trained else None,
        "advantage": row["advantage"],
        "turns": row["turns"],
        "tool_calls": row["calls"],
        "tool_errors": trajectory.tool_errors,
        "malformed_turns": trajectory.malformed_turns,
        "prompt_tokens": trajectory.prompt_tokens,
        "response_tokens": trajectory.response_tokens,
        "sampled_tokens": sum(turn.tokens for turn in trajectory.turns),
        "seconds": trajectory.seconds,
        "generation_seconds": trajectory.generation_seconds,
        "tool_seconds": trajectory.tool_seconds,
        "ended": trajectory.ended or None,
        "images": " ".join(image_names(trajectory)) or None,
        "question": questions[-1] if questions else None,
        "response": "\n".join(text for turn in trajectory.turns for text in (turn.text, turn.observation) if text),
        "answer": trajectory.answer,
        "ground_truth": None if trajectory.ground_truth is None else _as_text(trajectory.ground_truth),
    }


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the records as lines of JSON; return their number."""
    with open(path, "w", encoding="utf-8") as file:
        return sum(bool(file.write(json.dumps(record) + "\n")) for record in records)


def write_csv(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the records as CSV, with the columns of all records; return their number.

    Text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe.
    """
    rows = list(records)
    columns = list(dict.fromkeys(name for record in rows for name in record))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writerow({name: _inert(name) for name in columns})
        writer.writerows({name: _inert(value) for name, value in record.items()} for record in rows)
    return len(rows)


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA) else value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
