"""Selects trajectories from a trace, and converts each to a flat record for tables (pandas, DuckDB, a spreadsheet)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError, reason_of
from agent_rl.trajectory import Trajectory, trace
from agent_rl.trajectory.trace.tables import split_of, trajectory_row

_FIRST = ("id", "group", "step", "split", "index", "data_source", "agent", "stop_reason", "error", "reward")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet evaluate a cell as a formula."""


def select(
    path: Path,
    *,
    split: str | None = None,
    step: int | None = None,
    min_reward: float | None = None,
    limit: int | None = None,
) -> Iterator[Trajectory]:
    """Yield the matching trajectories of a trace, and skip incomplete lines, which a killed run may leave.

    Args:
        path: the trace.
        split: the split of the row; None means any split.
        step: the training step; None means any step.
        min_reward: minimum reward, which excludes trajectories without a score; None means any reward.
        limit: maximum number of trajectories; None means all trajectories.

    Raises:
        ConfigError: the file cannot be read, or is not a trace; the error names the line.
    """

    def matches(trajectory: Trajectory) -> bool:
        if split not in (None, split_of(trajectory)) or step not in (None, trajectory.info.get("step")):
            return False
        return min_reward is None or (trajectory.score is not None and trajectory.score.total >= min_reward)

    try:
        yield from islice(filter(matches, trace.read(path, torn="skip")), limit)
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), reason_of(error), "Pass the trace of a run or an evaluation") from error


def flat_record(trajectory: Trajectory, trained: Sequence[trace.TrainedRow] = ()) -> dict[str, Any]:
    """Return a trajectory's columns; a component's column is `reward.<name>`, and images are names in the image folder.

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
        "images": " ".join(trace.image_names(trajectory)) or None,
        "question": questions[-1] if questions else None,
        "response": "\n".join(text for turn in trajectory.turns for text in (turn.text, turn.observation) if text),
        "answer": trajectory.answer,
        "ground_truth": None if trajectory.ground_truth is None else _as_text(trajectory.ground_truth),
    }


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the records as lines of JSON; return the number of records."""
    with open(path, "w", encoding="utf-8") as file:
        return sum(bool(file.write(json.dumps(record) + "\n")) for record in records)


def write_csv(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the records as CSV, with the columns of all records; return the number of records.

    Text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe.
    """
    import pandas as pd

    rows = [{_inert(name): _inert(value) for name, value in record.items()} for record in records]
    pd.DataFrame(rows, dtype=object).to_csv(path, index=False, lineterminator="\r\n")
    return len(rows)


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA) else value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
