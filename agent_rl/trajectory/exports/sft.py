"""Rejection sampling: the best trajectories of a trace as data for supervised fine-tuning.

A row is a training sequence as the run had it: the tokens of prompt and response, and the mask of what was sampled. So
nothing is rendered again, and `EpisodeDataSet` (`verl_adapter/row_data_set.py`) trains on exactly what was sampled.
What cannot be written so is left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, Trajectory
from agent_rl.trajectory.trace import Tokens
from agent_rl.trajectory.trace.tables import split_of

__all__ = ["SftChoice", "sft_rows", "write_sft"]

CUT = (StopReason.MAX_TOKENS, StopReason.ENGINE_ERROR, StopReason.ERROR)
"""Ends in the middle of a turn."""


@dataclass
class SftChoice:
    """Which of the trajectories are taken; then `left_out` says how many were not, by reason.

    Attributes:
        min_reward: least reward; None: any score.
        split: the row's split; None: any.
        trained: ids of trajectories that were trained on; of rows that name no split, only these are taken.
        per_prompt: most trajectories of a prompt in the whole trace, the best; None: no limit.
    """

    min_reward: float | None = None
    split: str | None = "train"
    trained: Collection[str] = ()
    per_prompt: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)

    def of(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """The chosen ones in their order; each conversation once."""
        known: set[str] = set()
        prompts: Counter[str] = Counter()
        found = list(trajectories)
        chosen: set[int] = set()
        best_first = sorted(found, key=lambda each: 0.0 if each.score is None else -each.score.total)
        for each in best_first:  # of equal rewards the first
            prompt = json.dumps([[message.role, message.content] for message in each.prompt])
            talk = json.dumps([prompt, [turn.text for turn in each.turns]])
            reason = self._refusal(each)
            if reason is None and talk in known:
                reason = "the same conversation again"
            if reason is None and prompts[prompt] == self.per_prompt:
                reason = "more of the same prompt"
            if reason is None:
                known.add(talk)
                prompts[prompt] += 1
                chosen.add(id(each))
            else:
                self.left_out[reason] += 1
        return [each for each in found if id(each) in chosen]

    def _refusal(self, trajectory: Trajectory) -> str | None:
        """Why a trajectory is not taken, whatever the others are."""
        split = split_of(trajectory)
        if self.split is not None and (trajectory.id not in self.trained if split is None else split != self.split):
            return f"not of the split {self.split}"
        if trajectory.score is None or trajectory.error is not None:
            return "no score"
        if trajectory.stop_reason in CUT or not trajectory.turns:
            return "cut off"
        too_little = self.min_reward is not None and trajectory.score.total < self.min_reward
        return "reward below the threshold" if too_little else None


def sft_rows(
    trajectories: Iterable[Trajectory], tokens_of: Callable[[str], Tokens | None], choice: SftChoice
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each chosen trajectory, one for each of its training sequences.

    Args:
        trajectories: of a trace.
        tokens_of: finds the tokens of one by its id.
        choice: is filled with what was left out.

    Raises:
        ConfigError: none of the trajectories has tokens.
    """
    chosen, found = choice.of(trajectories), False
    for each in chosen:
        tokens = tokens_of(each.id)
        found = found or tokens is not None
        if tokens is None:
            choice.left_out["without tokens"] += 1
        elif not tokens["messages"] or any(sequence["images"] for sequence in tokens["sequences"]):
            choice.left_out["with images, videos or audios"] += 1
        else:
            about = {
                "id": each.id,
                "reward": each.score.total if each.score else None,
                "data_source": each.data_source,
                "step": each.info.get("step"),
                "messages": json.dumps(tokens["messages"]),
                "tools": json.dumps(tokens["tools"]),
            }
            yield [
                {**{name: list(sequence[name]) for name in ("prompt_ids", "response_ids", "mask")}, **about}
                for sequence in tokens["sequences"]
            ]
    if chosen and not found:
        remedy = "Write it with agent_rl.trace.tokens=true, as every recipe does"
        raise ConfigError("sft", "the trace has no conversations: they are kept with the tokens", remedy)


def write_sft(path: Path, trajectories: Iterable[list[dict[str, Any]]]) -> int:
    """Write the rows of trajectories as parquet; returns the number of trajectories."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    ids, found = pa.list_(pa.int64()), list(trajectories)
    columns = {"prompt_ids": ids, "response_ids": ids, "mask": ids, "id": pa.string(), "reward": pa.float64(),
               "data_source": pa.string(), "step": pa.int64(), "messages": pa.string(),
               "tools": pa.string()}  # fmt: skip
    parquet.write_table(pa.Table.from_pylist([row for rows in found for row in rows], pa.schema(columns)), path)
    return len(found)
