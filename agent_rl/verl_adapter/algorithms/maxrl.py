"""MaxRL (`algo=maxrl`, https://arxiv.org/abs/2602.02710), which verl lacks."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from agent_rl.verl_adapter.algorithms.turn import members

ESTIMATOR = "agent_rl_maxrl"
"""The value of `algorithm.adv_estimator` that selects this estimator."""


def register_estimator(module: ModuleType) -> None:
    """Register the estimator with `verl.trainer.ppo.core_algos`.

    An advantage is the reward minus the group's mean reward, divided by this mean; it is 0 if the mean is not positive.
    """
    import torch

    @module.register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
    def estimate(token_level_rewards: Any, response_mask: Any, index: Sequence[str], **_: Any) -> Any:
        scores_B = token_level_rewards.sum(dim=-1)
        advantages_B = torch.zeros_like(scores_B)
        for rows in members(index):
            if (mean := scores_B[rows].mean()) > 0:
                advantages_B[rows] = (scores_B[rows] - mean) / mean
        advantages_BT = advantages_B.unsqueeze(-1) * response_mask
        return advantages_BT, advantages_BT
