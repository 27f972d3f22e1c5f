"""`read_trace` returns a run's trajectories, turns and tool calls as pandas DataFrames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.batches import TrainedRow, mean_advantage, read_trained_rows
from agent_rl.trajectory.trace.files import read, trace_of

if TYPE_CHECKING:
    import pandas as pd

TRAJECTORY = (
    *("id", "group", "step", "split", "index", "data_source", "agent", "stop_reason", "error", "answer"),
    *("ground_truth", "reward", "advantage", "turns", "calls", "prompt_tokens", "response_tokens", "seconds", "ended"),
)
TURN = ("id", "turn", "text", "observation", "malformed", "tokens", "calls", "generation_seconds", "tool_seconds")
CALL = (
    *("id", "turn", "call", "tool", "arguments", "status", "text", "seconds", "queue_seconds", "reward", "answer"),
    "metrics",
)


class TraceTables(NamedTuple):
    """The three tables of a trace: `id` joins all of them, and `id` with `turn` joins turns and calls.

    Attributes:
        trajectories: in the order of the trace: `id`, `group` (the id without the number of the sample), `step`,
            `split` and `index` of the row, `data_source`, `agent`, `stop_reason`, `error`, `answer`, `ground_truth`,
            `reward`, `advantage` (the mean advantage in training; missing for a trajectory that was not trained on),
            the numbers of `turns` and `calls`, `prompt_tokens`, `response_tokens`, `seconds`, `ended` (Unix time), and
            `reward.<name>` for each component.
        turns: `id`, `turn` (from 0), `text`, `observation`, `malformed` (what is wrong with its format), the number of
            sampled `tokens`, the number of `calls`, `generation_seconds`, `tool_seconds`.
        calls: `id`, `turn`, `call` (from 0 in its turn), `tool`, `arguments`, and the result's `status`, `text`,
            `seconds`, `queue_seconds`, `reward`, `answer`, `metrics`, unless the episode ended before the result.
    """

    trajectories: pd.DataFrame
    turns: pd.DataFrame
    calls: pd.DataFrame


def read_trace(run: str | os.PathLike[str]) -> TraceTables:
    """Return the trajectories, turns and tool calls of a run as three tables.

        tables = agent_rl.read_trace("outputs/gsm8k_calculator")
        tables.trajectories.groupby("step")["reward"].mean()
        tables.calls.groupby("tool")["status"].value_counts()

    Args:
        run: the folder of a run or of an evaluation, or a trace; incomplete lines of a killed run are skipped. If an
            evaluation repeated an episode that had no score, only its last record is used.

    Raises:
        ConfigError: there is no trace.
        ValueError: a line is not a trajectory; the error names the file and the line.
    """
    import pandas as pd

    path = trace_of(run)
    trained = read_trained_rows(path)
    trajectories, turns, calls = dict[Any, dict[str, Any]](), dict[Any, list[Any]](), dict[Any, list[Any]]()
    for place_in_trace, trajectory in enumerate(read(path, torn="skip")):
        key = trajectory.id or place_in_trace
        trajectories[key], turns[key], calls[key] = trajectory_row(trajectory, trained.get(trajectory.id, ())), [], []
        for number, turn in enumerate(trajectory.turns):
            place = {"id": trajectory.id, "turn": number}
            columns = {name: getattr(turn, name) for name in TURN if hasattr(turn, name)}
            turns[key].append(columns | place | {"calls": len(turn.calls)})
            for count, call in enumerate(turn.calls):
                columns = {"call": count, "tool": call.name, "arguments": call.arguments}
                if count < len(turn.results):
                    result = turn.results[count]
                    columns |= {name: getattr(result, name) for name in CALL if hasattr(result, name)}
                    columns["status"] = result.status.value
                calls[key].append(columns | place)
    components = dict.fromkeys(name for row in trajectories.values() for name in row if name.startswith("reward."))
    return TraceTables(
        pd.DataFrame(list(trajectories.values()), columns=[*TRAJECTORY, *components]),
        pd.DataFrame(list(chain.from_iterable(turns.values())), columns=list(TURN)),
        pd.DataFrame(list(chain.from_iterable(calls.values())), columns=list(CALL)),
    )


def split_of(trajectory: Trajectory) -> str | None:
    """Return the split of the trajectory's row, or None if the row has no split."""
    return trajectory.info.get("split") or trajectory.extra_info.get("split")


def trajectory_row(trajectory: Trajectory, trained: Sequence[TrainedRow]) -> dict[str, Any]:
    """Return the columns of a trajectory in `TraceTables.trajectories`; `trained` contains its training rows."""
    info, score = trajectory.info, trajectory.score
    return {
        **{name: getattr(trajectory, name) for name in TRAJECTORY if hasattr(trajectory, name)},
        "group": trajectory.id.rpartition("_")[0],
        "step": info.get("step"),
        "split": split_of(trajectory),
        "index": info.get("index", info.get("row")),
        "stop_reason": trajectory.stop_reason.value,
        "reward": score.total if score else None,
        "advantage": mean_advantage(trained),
        "turns": len(trajectory.turns),
        "calls": trajectory.tool_calls,
        **{f"reward.{name}": value for name, value in (score.components if score else {}).items()},
    }
