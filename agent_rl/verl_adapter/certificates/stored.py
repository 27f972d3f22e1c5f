"""Recomputes the advantages of a stored batch with the estimator and the settings of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from verl import DataProto

from agent_rl.agents.policies.token_policy import TrainingSequence
from agent_rl.settings import GigpoSettings
from agent_rl.trajectory import Trajectory
from agent_rl.verl_adapter.algorithms import turns
from agent_rl.verl_adapter.algorithms.advantages import estimate
from agent_rl.verl_adapter.trained_samples import GROUPWISE

STORED = {"grpo", *GROUPWISE, *turns.BY_TURN, "reinforce_plus_plus"} - {"gdpo"}
"""Estimators that read only rewards, masks and turns."""


class StoredRow(NamedTuple):
    """One row of a batch: a training sequence, with the key `<prompt>_<sample>_<sequence>`."""

    key: str
    reward: float
    mask: Sequence[int]
    record: Mapping[str, Any]
    """See `turn_record`."""


def turn_record(sequence: TrainingSequence, trajectory: Trajectory, settings: GigpoSettings) -> dict[str, Any]:
    """Return the record of a training sequence's turns, as the agent loop sent it to the trainer."""
    rewards = trajectory.score.turn_rewards if trajectory.score else []
    states = turns.turn_states(trajectory, settings.history)
    return {**turns.credit_fields(sequence, trajectory, states), turns.REWARDS: rewards}


def stored_advantages(rows: Sequence[StoredRow], algorithm: Any, settings: GigpoSettings) -> list[list[float]]:
    """Return the advantages of each row's response tokens.

    Args:
        rows: the rows of a batch without its padding rows.
        algorithm: the run's `algorithm` section, with an estimator in `STORED`.
        settings: GiGPO's settings.
    """
    shape = len(rows), max(len(row.mask) for row in rows)
    mask_BT, rewards_BT = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    columns = {name: np.empty(len(rows), dtype=object) for name in ("uid", turns.RECORDS)}
    for number, row in enumerate(rows):
        mask_BT[number, : len(row.mask)] = torch.tensor(list(row.mask))
        sampled = mask_BT[number].nonzero()
        rewards_BT[number, sampled[-1] if len(sampled) else -1] = row.reward
        columns["uid"][number], columns[turns.RECORDS][number] = row.key.rsplit("_", 2)[0], dict(row.record)
    tensors = {"response_mask": mask_BT, "token_level_rewards": rewards_BT}
    result = estimate(
        DataProto.from_dict(tensors, columns, meta_info={"gigpo": settings}),
        [row.key for row in rows],
        algorithm.adv_estimator,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    )
    return [values[: len(row.mask)].tolist() for row, values in zip(rows, result.batch["advantages"], strict=True)]
