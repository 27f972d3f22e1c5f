"""verl's dumps of rollouts (`trainer.rollout_data_dir` and `validation_data_dir`) as trajectories, and their scores.

A dump has the text of prompt and response without their special tokens. Turns are separated at roles on a
line of their own, as in ChatML and in Llama 3's template; where none is found the response is one turn. A dump
does not have numbers of tokens, seconds, or whether a tool failed. A turn with such a line in its own text is cut
in two.

The text does not say whether the last turn was cut off at the length limit, when it is neither an answer nor malformed.
The numbers that our reward manager reports say it; a dump without them is read as if every turn had ended.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import Generation, cut_at_stop
from agent_rl.errors import ConfigError, MalformedActionError
from agent_rl.evaluation.ledger import Record, summarize_trajectory
from agent_rl.evaluation.summary import cell, summarize
from agent_rl.pieces import Pieces
from agent_rl.rewards import Reward
from agent_rl.rewards.lab import score_groups
from agent_rl.settings import RewardSettings
from agent_rl.tools import ToolSpec
from agent_rl.trace import segments
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn

__all__ = ["DumpedSample", "read_dump", "score_dump", "step_table", "to_trajectory"]

_KEYS = ("input", "output", "gts", "score", "step")
_PADDING = re.compile(r"pad[0-9a-f]{32}_")
"""The rows with which verl fills up a batch; `verl_adapter.patches.rollouts` leaves them out of new dumps."""


@dataclass(frozen=True, slots=True)
class DumpedSample:
    """One line of a dump."""

    step: int
    row: str
    """The same for all samples of one row in a step."""
    input: str
    output: str
    ground_truth: Any
    score: float
    """The score that verl computed."""
    reported: Mapping[str, Any] = field(default_factory=dict)
    """What else the line has: `extra_info` of `agent_rl.rewards.compose`, if our reward manager wrote it."""


def read_dump(path: str | os.PathLike[str]) -> list[DumpedSample]:
    """The samples of a dump, by step; only the last sequence of each trajectory.

    Args:
        path: the folder, or one of its files.

    Raises:
        ConfigError: for a file that is not a dump, naming file and line.
    """
    place = Path(path)
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    found: dict[tuple[int, str], DumpedSample] = {}
    for file in files:
        for number, line in enumerate(_lines(file), start=1):
            sample, key = _sample(line, f"{file}, line {number}", number)
            if not _PADDING.match(key):
                found[sample.step, key] = sample
    if not found:
        raise ConfigError(str(path), "there are no samples", "Name the folder in trainer.rollout_data_dir")
    return sorted(found.values(), key=lambda sample: sample.step)


def to_trajectory(sample: DumpedSample, format: Format, specs: Sequence[ToolSpec]) -> Trajectory:
    """A sample as the loop would have seen it.

    Args:
        sample: one line of a dump.
        format: of the agent that wrote it.
        specs: the tools that it had; the arguments of a call may depend on them.
    """
    format = format.fresh()
    prompt, trajectory = segments(sample.input), Trajectory(prompt=[], stop_reason=StopReason.MAX_TURNS)
    trajectory.prompt = [Message(role, text) for role, text in prompt if text or role != "assistant"]  # type: ignore[arg-type]
    trajectory.ground_truth = sample.ground_truth
    for role, text in segments(sample.output, "assistant"):
        if role == "assistant":
            trajectory.turns.append(Turn(text=cut_at_stop(text, format.stop, format.keep_stop)))
        elif trajectory.turns:
            last = trajectory.turns[-1]
            last.observation = text if last.observation is None else f"{last.observation}\n{text}"
    for turn in trajectory.turns:
        try:
            step = format.read(Generation(turn.text, 0), specs)
        except MalformedActionError as error:
            turn.malformed = str(error)
            continue
        turn.calls = step.calls
        if not step.calls:
            trajectory.answer, trajectory.stop_reason = step.answer, StopReason.ANSWERED
    _as_reported(trajectory, sample.reported)
    return trajectory


def _as_reported(trajectory: Trajectory, reported: Mapping[str, Any]) -> None:
    """Correct the end: the loop does not read a turn that is cut off, nor does it take an answer from it."""
    reason = next((reason for reason in StopReason if reported.get(f"stop_{reason.value}")), None)
    if reason is None or not trajectory.turns:
        return
    last, trajectory.stop_reason = trajectory.turns[-1], reason
    if not reported.get("answered"):
        trajectory.answer = None
    if trajectory.malformed_turns > reported.get("malformed_turns", math.inf):
        last.malformed = None
    if trajectory.tool_calls > reported.get("tool_calls", math.inf):
        last.calls = []


async def score_dump(
    samples: Sequence[DumpedSample],
    format: Format,
    specs: Sequence[ToolSpec],
    settings: RewardSettings,
    kept: Pieces | None = None,
) -> dict[int, list[Record]]:
    """The samples of each step, scored by our reward; verl's own score is the metric `verl_score`.

    `kept` has the rows of a step that were scored before, by number, and gets the others.
    """
    # A dump has no numbers of tokens, so nothing is overlong.
    reward = Reward(settings.model_copy(update={"overlong": settings.overlong.model_copy(update={"penalty": 0.0})}))
    rows: dict[tuple[int, str], list[DumpedSample]] = {}
    for sample in samples:
        rows.setdefault((sample.step, sample.row), []).append(sample)
    groups = [[to_trajectory(sample, format, specs) for sample in row] for row in rows.values()]
    steps: dict[int, list[Record]] = {}
    try:
        scored = await score_groups(groups, reward, kept=kept)
    finally:
        await reward.close()
    for number, (row, group) in enumerate(zip(rows.values(), scored, strict=True)):
        for at, (sample, trajectory) in enumerate(zip(row, group, strict=True)):
            trajectory.info |= {"row": number, "sample": at}
            record = summarize_trajectory(trajectory)
            record = replace(record, metrics={**record.metrics, "verl_score": sample.score})
            steps.setdefault(sample.step, []).append(record)
    return steps


def step_table(steps: dict[int, list[Record]], title: str) -> tuple[Table, dict[str, Any]]:
    """A row for each step, and the same as JSON data."""
    summaries = {}
    for step, records in steps.items():
        rows = {record.row for record in records}
        n = max(sum(record.row == row for record in records) for row in rows)
        summaries[str(step)] = summarize(records, rows=len(rows), n=n)["all"]
    shown = Table(title=title, title_justify="left")
    for name in ("step", "samples", "pass@1", "pass@n", "reward", "verl's score", "tool calls", "malformed rate"):
        shown.add_column(name, justify="right")
    for name, summary in summaries.items():
        metrics = summary["metrics"]
        *_, most = summary["pass"].values()
        columns = (
            summary["pass"]["1"], most, summary["reward"], metrics.get("verl_score"), metrics.get("tool_calls"),
            metrics.get("malformed_rate"),
        )  # fmt: skip
        shown.add_row(name, str(summary["scored"] + summary["unscored"]), *map(cell, columns))
    return shown, summaries


def _lines(file: Path) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read ({error})", "Name a dump's folder or file") from error


def _sample(line: str, place: str, number: int) -> tuple[DumpedSample, str]:
    """The sample of a line, and the key of its trajectory."""
    try:
        data = json.loads(line)
        missing = [key for key in _KEYS if key not in data]
        if missing:
            raise ConfigError(place, f"it has no {', '.join(missing)}", "This is not a dump of verl's rollouts")
        uid = str(data.get("uid", f"{number}_0_0"))
        row, _, _ = uid.rpartition("_")
        row, _, _ = row.rpartition("_")
        more = {key: value for key, value in data.items() if key not in _KEYS}
        sample = DumpedSample(
            int(data["step"]),
            row or uid,
            str(data["input"]),
            str(data["output"]),
            data["gts"],
            float(data["score"]),
            more,
        )
        return sample, uid.rpartition("_")[0] or uid
    except (ValueError, TypeError) as error:
        raise ConfigError(place, f"not a line of a dump ({error})", "Name the folder of a dump") from error
