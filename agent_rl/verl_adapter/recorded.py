"""`policy=trace`: a run without an engine, which trains on the trajectories of a finished run instead of sampling.

The trainer gives each prompt the uid that the prompt had in the recorded run, so that each session's id leads to its
trajectory, tokens and score in the trace. Tools, environments and rewards are not called again: their results are in
the trajectory. All passes of the update are computed again. Each batch is put into the recorded order of rows, because
sums of floats depend on this order, which was the order in which the episodes ended.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from agent_rl.agents.policies.media import Media
from agent_rl.agents.policies.token_policy import TrainingSequence, stored_sequences
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.compose import extra_info
from agent_rl.trajectory import LEFT_OUT, Score, Trajectory, row_data
from agent_rl.trajectory.trace import TokenReader, Tokens, read_batches
from agent_rl.trajectory.trace.files import trace_of
from agent_rl.trajectory.trace.tables import split_of
from agent_rl.verl_adapter.algorithms.turns import REWARDS
from agent_rl.verl_adapter.stragglers import EndedEarlyError
from agent_rl.work.parts import parts, whole_lines
from agent_rl.work.store import reply_key

KEY = "agent_rl.policy.trace"


class RecordedEpisode:
    """An episode of the recorded run, with the attributes of the `TokenPolicy` that sampled it."""

    def __init__(self, trajectory: Trajectory, tokens: Tokens | None) -> None:
        self.trajectory, self._tokens = trajectory, tokens
        self.response_tokens, self.preempted, self.media = trajectory.response_tokens, -1, Media()
        names = "global_steps", "min_global_steps", "max_global_steps"
        self.extra_fields = dict.fromkeys(names, trajectory.info["step"] - 1)  # the weights' version

    def record(self) -> Tokens:
        """Return the tokens.

        Raises:
            ConfigError: the tokens are not stored, or the episode has images, which are not stored.
        """
        if self._tokens is None or any(each["images"] for each in self._tokens["sequences"]):
            problem = f"trajectory {self.trajectory.id} has no stored tokens, or has images, which are not stored"
            raise ConfigError(KEY, problem, "Choose a text-only run with agent_rl.trace.tokens=true")
        return self._tokens

    def sequences(self) -> list[TrainingSequence]:
        """Return the training sequences; see `record`."""
        return stored_sequences(self.record()["sequences"])

    def error(self) -> UnscoredError:
        """Return the error to raise for a trajectory without a score."""
        text = str(self.trajectory.error)
        return EndedEarlyError() if str(EndedEarlyError()) in text else UnscoredError(text)

    def score(self, output: Any) -> None:
        """Put the recorded score into the episode's last output, so that no reward is computed."""
        score = self.trajectory.score or Score(0.0)  # `run` raises an error if a trajectory has no score
        output.reward_score = score.total
        rewards = {REWARDS: score.turn_rewards} if any(score.turn_rewards) else {}
        output.extra_fields["reward_extra_info"] = {**extra_info(self.trajectory, score), **rewards}


class RecordedRun:
    """The training episodes and batches in a run's trace; `place` is the run's folder or the trace.

    Raises:
        ConfigError: there is no trace.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = trace_of(place)
        self._batches = {(batch.step, batch.update): batch for batch in read_batches(self.path)}
        self._tokens = TokenReader(self.path)
        self._places: dict[str, tuple[Path, int]] = {}
        prompts: dict[tuple[int, str], dict[str, None]] = {}
        trained = {name.rsplit("_", 2)[0] for batch in self._batches.values() for name in batch.names}
        for part, (start, line) in ((file, each) for file in parts(self.path) for each in whole_lines(file, 0)):
            with suppress(ValueError):  # a killed run may leave an incomplete line
                own = Trajectory.from_json(line)
                uid, step, self._places[own.id] = own.id.rpartition("_")[0], own.info.get("step"), (part, start)
                if step is not None and (uid in trained or split_of(own) == "train"):
                    uids = prompts.setdefault((step, _row_key(own.row)), {})
                    uids.pop(uid, None)
                    uids[uid] = None
        self._uids = {key: sorted(uids, key=trained.__contains__) for key, uids in prompts.items()}
        """The uids of each row in each step; the last uids are used, as a resumed run may have repeated a step."""

    def require(self, steps: int) -> None:
        """Check that the trace contains the first `steps` steps, with their batches and tokens.

        Raises:
            ConfigError: a step, its batches or its tokens are missing.
        """
        recorded = {step for step, _ in self._uids}
        if missing := next((step for step in range(1, steps + 1) if step not in recorded), None):
            problem = f"step {missing} of {steps} is not in {self.path}"
            raise ConfigError("trainer.total_training_steps", problem, f"Set the key to at most {missing - 1}")
        batches = [batch for batch in self._batches.values() if batch.step <= steps]
        ids = [name.rpartition("_")[0] for batch in batches for name in batch.names]
        lacks = next((id for id in ids if id not in self._places or id not in self._tokens), None)
        if lacks or not ids:
            problem = f"{self.path} has no {f'tokens of {lacks}' if lacks else 'training batches'}"
            raise ConfigError(KEY, problem, "Choose a run with agent_rl.trace.tokens=true and a complete trace")
        self.episode(ids[0]).record()

    def episode(self, id: str) -> RecordedEpisode:
        """Return the episode with this id (`<prompt>_<sample>`); if a resumed run repeated it, return the newest.

        Raises:
            ConfigError: the trace has no such episode.
        """
        if id not in self._places:
            raise ConfigError(KEY, f"{self.path} has no trajectory {id}", "Restore the whole trace, with all its parts")
        path, start = self._places[id]
        with open(path, "rb") as file:
            file.seek(start)
            own = Trajectory.from_json(file.readline())
        own.info.pop(LEFT_OUT, None)  # this run's masks decide
        return RecordedEpisode(own, self._tokens.read(id))

    def name_prompts(self, batch: Any, step: int) -> None:
        """Give each prompt of a step its uid in the recorded run; `batch` is verl's `TensorDict` of rows.

        Raises:
            ConfigError: the recorded run drew different rows in this step.
        """
        from verl.utils.tensordict_utils import NonTensorStack, assign_non_tensor_stack

        columns = {name: value for name, value in batch.items() if isinstance(value, NonTensorStack)}
        rows = [{name: value[row].data for name, value in columns.items()} for row in range(len(batch))]
        keys = [(step, _row_key(row_data(unpacked(row)))) for row in rows]
        left = {key: self._uids.get(key, [])[-count:] for key, count in Counter(keys).items()}
        for number, key in enumerate(keys, 1):
            if not left[key]:
                problem = f"row {number} of step {step} was not drawn in this step of {self.path}"
                raise ConfigError(KEY, problem, "Use the rows, data.seed and other data keys of that run")
        assign_non_tensor_stack(batch, "uid", [left[key].pop(0) for key in keys])

    def order(self, batch: Any, step: int, update: int) -> None:
        """Put the rows of a batch (verl's `KVBatchMeta`) into the recorded order; unrecorded rows follow."""
        if (recorded := self._batches.get((step, update))) is None:
            return
        slots: list[str | None] = list(recorded.names)
        for position in recorded.padding:
            slots.insert(position, None)
        rows = {key: row for row, key in enumerate(batch.keys)}
        padding = iter([row for row, tag in enumerate(batch.tags) if tag.get("is_padding", False)])
        places = [next(padding, None) if name is None else rows.get(name) for name in slots]
        order = [row for row in places if row is not None]
        batch.reorder([*order, *sorted(set(rows.values()) - set(order))])


run_at = cache(RecordedRun)
"""Returns a run's `RecordedRun`, which is shared within the process."""


def _row_key(row: Mapping[str, Any]) -> str:
    """Return a hash of a row's data, without the columns that verl's workers remove from the row."""
    own = {name: value for name, value in row.items() if name != "agent_name" and not name.startswith("__")}
    return reply_key(own)
