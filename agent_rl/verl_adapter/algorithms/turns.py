"""`TurnTable`: the trajectories of a batch, turn by turn, for estimators that assign each turn its own advantage.

verl stores one row per training sequence, with the reward on the row's last token. A trajectory may have several rows,
so `credit_fields` sends the turns' positions with every row; the turns' rewards are read from the last row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_rl.agents.policies.token_policy import TrainingSequence
from agent_rl.settings import GigpoSettings
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.tokens import sampled_runs
from agent_rl.verl_adapter.algorithms import gigpo
from agent_rl.verl_adapter.algorithms.turn import ESTIMATOR, turn_advantages
from agent_rl.verl_adapter.trained_samples import final_rows, session_of

BY_TURN = (ESTIMATOR, gigpo.ESTIMATOR)
"""The values of `algorithm.adv_estimator` for estimators with one advantage per turn."""
RECORDS = "turn_records"
"""Column of `DataProto.non_tensor_batch`: the `extra_fields` of each row, or None for a padding row."""
SPANS, STATES, REWARDS = "turn_spans", "turn_states", "turn_rewards"
"""Keys in a row's `extra_fields`: the `[turn, start, end]` of each sampled span of a response (turns begin at 1), the
hash of the state before each turn of the trajectory, and the reward of each turn."""


def credit_fields(sequence: TrainingSequence, trajectory: Trajectory, states: list[str]) -> dict[str, Any]:
    """Return the fields that describe a sequence's turns to the trainer.

    Args:
        sequence: the training sequence; a fold's notes are assigned to the turn before the fold.
        trajectory: the whole trajectory.
        states: the states of the trajectory; see `turn_states`.
    """
    turns = [number for number, turn in enumerate(trajectory.turns, 1) for _ in range(1 + ("fold" in turn.notes))]
    spans = [[turns[min(sample, len(turns)) - 1], start, end] for sample, start, end in sequence.spans if turns]
    return {SPANS: spans, STATES: states}


def turn_states(trajectory: Trajectory, history: int = 0) -> list[str]:
    """Return the hash of the state before each turn; within a prompt's samples, equal states have equal hashes.

    A state is the last value that the environment's `state_key` returned before the turn or, without that method, the
    text of the previous turn's observation. A turn without such a value or text has a unique state.

    Args:
        trajectory: the trajectory.
        history: number of previous turns whose states and texts are part of the state.
    """
    keys: list[Any] = [trajectory.info.get("state", "start")]
    for number, turn in enumerate(trajectory.turns[:-1], 1):
        unnamed = [trajectory.id, number] if turn.observation is None else turn.observation
        keys.append(turn.notes.get("state", keys[-1] if "state" in trajectory.info else unnamed))
    steps = [(key, turn.text) for key, turn in zip(keys, trajectory.turns, strict=False)]
    return [_hash([key, steps[max(0, place - history) : place]]) for place, (key, _) in enumerate(steps)]


def add_records(data: Any, batch: Any) -> None:
    """Add each row's `extra_fields`, with the fields from `credit_fields`, to the data of a batch.

    Args:
        data: a `DataProto` with the rows of the batch.
        batch: verl's `KVBatchMeta`.
    """
    import transfer_queue as tq

    own = [row for row, key in enumerate(batch.keys) if not key.startswith("pad")]
    keys = [batch.keys[row] for row in own]
    fields = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    records = np.full(len(batch.keys), None, dtype=object)
    for row, record in zip(own, fields["extra_fields"], strict=True):
        records[row] = dict(getattr(record, "data", record))
    data.non_tensor_batch[RECORDS] = records


def turn_level_advantages(
    data: Any,
    batch_keys: Sequence[str],
    adv_estimator: str,
    gamma: float = 1.0,
    norm_adv_by_std_in_grpo: bool = True,
    **_: Any,
) -> Any:
    """Add `advantages` and `returns` to a batch; all tokens of a turn get the same number.

    Args:
        data: see `TurnTable.from_batch`; `meta_info["gigpo"]` contains GiGPO's settings. Metrics are added as
            `meta_info["metrics"]`.
        batch_keys: see `TurnTable.from_batch`.
        adv_estimator: one of `BY_TURN`.
        gamma: the per-turn discount of `algo=turn`.
        norm_adv_by_std_in_grpo: whether GiGPO divides by standard deviations.
    """
    table = TurnTable.from_batch(data, batch_keys)
    rewards = [own.tolist() for own in table.rewards]
    if adv_estimator == ESTIMATOR:
        advantages = turn_advantages(rewards, table.groups, gamma)
    else:
        own = data.meta_info.get("gigpo") or GigpoSettings()
        advantages, share = gigpo.gigpo_advantages(
            rewards, table.groups, table.states, own.weight, own.discount, norm_adv_by_std_in_grpo
        )
        data.meta_info["metrics"] = {"agent/lone_states": share}
    values_BT = table.spread(advantages, data.batch["token_level_rewards"]) * data.batch["response_mask"]
    data.batch["advantages"] = data.batch["returns"] = values_BT
    return data


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass
class TurnTable:
    """The trajectories of a batch.

    Attributes:
        groups: the prompt of each trajectory.
        rewards: the reward of each turn, one array per trajectory; their sum is the trajectory's reward.
        states: the hash of each turn's state, one list per trajectory; empty lists if the rows contain no states.
        rows: the trajectory of each row; -1 for a padding row.
        turns_BT: the turn in which each token was sampled, counted from 1; 0 for tokens that were not sampled.
    """

    groups: list[str]
    rewards: list[np.ndarray[Any, Any]]
    states: list[list[str]]
    rows: list[int]
    turns_BT: np.ndarray[Any, Any]

    @classmethod
    def from_batch(cls, data: Any, batch_keys: Sequence[str]) -> TurnTable:
        """Read a batch.

        The part of the reward that no turn earned is assigned to the last turn. If an agent loop sends no turns, each
        run of sampled tokens becomes one turn, with the rewards of its tokens. A KL penalty on a token reduces the
        reward of the token's turn.

        Args:
            data: a `DataProto` of padded tensors (rows, tokens of the response) with `response_mask`,
                `token_level_rewards` and, if a KL penalty has changed these rewards, `token_level_scores`.
            batch_keys: the rows' keys, which are `{uid}_{session}_{index}`, or `pad...` for padding rows.
        """
        records = list(data.non_tensor_batch.get(RECORDS, [None] * len(batch_keys)))
        rewards_BT, mask_BT = (data.batch[name].cpu().numpy() for name in ("token_level_rewards", "response_mask"))
        scores_BT = rewards_BT
        if "token_level_scores" in data.batch:
            scores_BT = data.batch["token_level_scores"].cpu().numpy()
        own = [row for row, key in enumerate(batch_keys) if not key.startswith("pad")]
        finals = final_rows(batch_keys)
        sessions = {name: place for place, name in enumerate(finals)}
        rows = [sessions.get(session_of(key), -1) for key in batch_keys]
        turns_BT, lengths = np.zeros(mask_BT.shape, dtype=int), [0] * len(sessions)
        for row in sorted(own, key=lambda row: int(batch_keys[row].rpartition("_")[2])):
            record, length = records[row] or {}, lengths[rows[row]]
            spans = record.get(SPANS)
            for turn, start, end in _runs(mask_BT[row], length) if spans is None else spans:
                turns_BT[row, start:end] = turn
            lengths[rows[row]] = max(length, len(record.get(STATES, ())), int(turns_BT[row].max(initial=0)))
        rewards, states = [], []
        for place, row in enumerate(finals.values()):
            record, length = records[row] or {}, max(1, lengths[place])
            if SPANS in record:
                turn_rewards = np.array(record.get(REWARDS) or [0.0] * length, dtype=float)
                turn_rewards[-1] += float(scores_BT[row].sum()) - turn_rewards.sum()
            else:
                turn_rewards = _by_turn(turns_BT[row], scores_BT[row], length)
            rewards.append(turn_rewards)
            states.append(list(record.get(STATES, ())))
        if scores_BT is not rewards_BT:
            for row in own:
                penalties_T = (rewards_BT[row] - scores_BT[row]) * (turns_BT[row] > 0)
                rewards[rows[row]] = rewards[rows[row]] + _by_turn(turns_BT[row], penalties_T, len(rewards[rows[row]]))
        return cls([name.rpartition("_")[0] for name in sessions], rewards, states, rows, turns_BT)

    def spread(self, advantages: Sequence[np.ndarray[Any, Any]], like: Any) -> Any:
        """Return a tensor (rows, tokens) with each turn's advantage on all tokens of the turn, and 0 elsewhere.

        Args:
            advantages: one array per trajectory, with an advantage per turn.
            like: a tensor with the type and device that the result should have.
        """
        import torch

        values_BT = np.zeros(self.turns_BT.shape)
        for row, session in enumerate(self.rows):
            if session >= 0:
                values_BT[row] = np.append(0.0, advantages[session])[self.turns_BT[row]]
        return torch.from_numpy(values_BT).to(like)


def _runs(mask_T: Any, before: int) -> list[tuple[int, int, int]]:
    """Return a span for each run of sampled tokens, numbering the runs from `before + 1`."""
    return [(before + number, *run) for number, run in enumerate(sampled_runs(mask_T), 1)]


def _by_turn(turns_T: np.ndarray[Any, Any], values_T: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Return the sum of the values for each turn; values outside all turns are added to the last turn."""
    sums: np.ndarray[Any, Any] = np.bincount(np.where(turns_T, turns_T, length), values_T, length + 1)[1:]
    return sums
