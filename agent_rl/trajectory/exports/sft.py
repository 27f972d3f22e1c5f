"""Rejection sampling: writes the best trajectories of a trace as data for supervised fine-tuning.

A row is one training sequence of the run: the token ids of its prompt and response, and the mask of the sampled tokens.
The text is not tokenized again, so `EpisodeDataSet` (`verl_adapter/row_data_set.py`) trains on exactly the sampled
tokens. Trajectories that cannot be written in this form are dropped and counted.
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

CUT = (StopReason.MAX_TOKENS, StopReason.ENGINE_ERROR, StopReason.ERROR)
"""Stop reasons that end an episode in the middle of a turn."""


@dataclass
class SftChoice:
    """Selects trajectories for fine-tuning, and counts the dropped trajectories.

    Attributes:
        min_reward: minimum reward; None means any score.
        split: the split of the row; None means any split.
        trained: ids of the trajectories that were trained on; if `split` is set, others without a split are dropped.
        per_prompt: number of trajectories to keep per prompt in the whole trace, best first; None means no limit.
        left_out: number of dropped trajectories by reason.
    """

    min_reward: float | None = None
    split: str | None = "train"
    trained: Collection[str] = ()
    per_prompt: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)

    def of(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the selected trajectories in their original order, without duplicate conversations."""
        conversations: set[str] = set()
        prompts: Counter[str] = Counter()
        candidates = list(trajectories)
        selected: set[int] = set()
        best_first = sorted(candidates, key=lambda each: 0.0 if each.score is None else -each.score.total)
        for trajectory in best_first:  # the stable sort keeps the order of equal rewards
            prompt = json.dumps([[message.role, message.content] for message in trajectory.prompt])
            conversation = json.dumps([prompt, [turn.text for turn in trajectory.turns]])
            reason = self._refusal(trajectory)
            if reason is None and conversation in conversations:
                reason = "duplicate conversation"
            if reason is None and prompts[prompt] == self.per_prompt:
                reason = "over the limit per prompt"
            if reason is None:
                conversations.add(conversation)
                prompts[prompt] += 1
                selected.add(id(trajectory))
            else:
                self.left_out[reason] += 1
        return [trajectory for trajectory in candidates if id(trajectory) in selected]

    def _refusal(self, trajectory: Trajectory) -> str | None:
        """Return the reason for dropping a trajectory, regardless of other trajectories, or None if it may be kept."""
        split = split_of(trajectory)
        if self.split is not None and (trajectory.id not in self.trained if split is None else split != self.split):
            return f"not in the split {self.split}"
        if trajectory.score is None or trajectory.error is not None:
            return "no score"
        if trajectory.stop_reason in CUT or not trajectory.turns:
            return "cut off"
        too_low = self.min_reward is not None and trajectory.score.total < self.min_reward
        return "reward below the threshold" if too_low else None


def sft_rows(
    trajectories: Iterable[Trajectory], tokens_of: Callable[[str], Tokens | None], choice: SftChoice
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each selected trajectory: one row per training sequence.

    Args:
        trajectories: the trajectories of a trace.
        tokens_of: function that gets a trajectory's id and returns its tokens, or None if there are none.
        choice: selects the trajectories; its `left_out` also counts trajectories that this function drops.

    Raises:
        ConfigError: none of the selected trajectories has tokens.
    """
    selected, any_tokens = choice.of(trajectories), False
    for trajectory in selected:
        tokens = tokens_of(trajectory.id)
        any_tokens = any_tokens or tokens is not None
        if tokens is None:
            choice.left_out["without tokens"] += 1
        elif not tokens["messages"] or any(sequence["images"] for sequence in tokens["sequences"]):
            choice.left_out["with images, videos or audio"] += 1
        else:
            about = {
                "id": trajectory.id,
                "reward": trajectory.score.total if trajectory.score else None,
                "data_source": trajectory.data_source,
                "step": trajectory.info.get("step"),
                "messages": json.dumps(tokens["messages"]),
                "tools": json.dumps(tokens["tools"]),
            }
            yield [
                {**{name: list(sequence[name]) for name in ("prompt_ids", "response_ids", "mask")}, **about}
                for sequence in tokens["sequences"]
            ]
    if selected and not any_tokens:
        remedy = "Run with agent_rl.trace.tokens=true, as every recipe does"
        raise ConfigError("sft", "the rows are made from tokens, but the trace contains none", remedy)


def write_sft(path: Path, trajectories: Iterable[list[dict[str, Any]]]) -> int:
    """Write the rows of trajectories as parquet; return the number of trajectories."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    ids, rows_of_each = pa.list_(pa.int64()), list(trajectories)
    columns = {"prompt_ids": ids, "response_ids": ids, "mask": ids, "id": pa.string(), "reward": pa.float64(),
               "data_source": pa.string(), "step": pa.int64(), "messages": pa.string(),
               "tools": pa.string()}  # fmt: skip
    parquet.write_table(pa.Table.from_pylist([row for rows in rows_of_each for row in rows], pa.schema(columns)), path)
    return len(rows_of_each)
