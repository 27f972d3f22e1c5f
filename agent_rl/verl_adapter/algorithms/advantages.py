"""Computes the advantages of a batch for `AgentTrainer` and for the checks of `agent-rl certify algo`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from agent_rl.verl_adapter import trained_samples
from agent_rl.verl_adapter.algorithms import turns

if TYPE_CHECKING:
    from verl import DataProto


def estimate(data: DataProto, batch_keys: list[str], adv_estimator: Any, **options: Any) -> DataProto:
    """Add `advantages` and `returns` to a batch, counting each trajectory once in its group.

    Args:
        data: padded tensors (rows, response tokens) with `token_level_rewards` and `response_mask`, and the column
            `uid` with each row's prompt id.
        batch_keys: the rows' keys, which are `{uid}_{session}_{index}`, or `pad...` for padding rows.
        adv_estimator: `algorithm.adv_estimator`.
        options: the arguments of verl's estimators.

    `turns.TurnTable.from_batch` describes the input of estimators with one advantage per turn.
    """
    if adv_estimator in turns.BY_TURN:
        advantages: DataProto = turns.turn_level_advantages(data, batch_keys, adv_estimator, **options)
        return advantages
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories  # loads `AgentTrainer`

    compute: Any = functools.partial(compute_advantage_for_multi_trajectories, adv_estimator=adv_estimator, **options)
    if adv_estimator in trained_samples.GROUPWISE:
        compute = functools.partial(trained_samples.trajectory_advantages, compute)
    result: DataProto = compute(data, batch_keys=batch_keys)
    return result
