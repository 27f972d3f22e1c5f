"""ReMax (`algo=remax`) for verl's v1 trainer, which has the formula but computes no greedy baselines.

The module `rollout` runs an additional, greedily decoded episode per prompt and publishes its reward. This module
contains the trainer's parts: the advantage estimator and its metrics. The greedy episode is not part of the training
data.

If the greedy episode has no score, its prompt has no baseline and fails. The asynchronous modes replace such a prompt;
`mode=sync` leaves out the prompt's samples and counts the prompt in `agent/without_baseline`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

ESTIMATOR = "agent_rl_remax"
"""The value of `algorithm.adv_estimator`; verl's own `remax` expects baselines that the v1 trainer does not pass."""

MANAGER = "agent_rl.verl_adapter.rollout.ReMaxAgentLoopManager"
"""The value of `actor_rollout_ref.rollout.agent.agent_loop_manager_class` that ReMax requires."""

GREEDY_SESSION = 0
"""The number of the greedy session; sessions 1 to n are the samples."""

BASELINES_PARTITION = "agent_rl_baselines"
"""TransferQueue partition with one tag per prompt, which contains the greedy episode's reward."""


async def publish(uid: str, reward: float) -> None:
    """Send the reward of a prompt's greedy episode to the trainer."""
    import transfer_queue as tq

    await tq.async_kv_put(key=uid, partition_id=BASELINES_PARTITION, tag={"reward": reward})


def register_estimator(module: ModuleType) -> None:
    """Register the estimator with `verl.trainer.ppo.core_algos`.

    By verl's formula, an advantage is the return minus the reward of the prompt's greedy episode. Padding rows have no
    baseline. If a batch has a column `reward_baselines`, the baselines are read from this column.
    """
    import torch

    @module.register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator]
    def estimate(
        token_level_rewards: Any, response_mask: Any, index: Sequence[str], reward_baselines: Any = None, **_: Any
    ) -> Any:
        if reward_baselines is None:
            baselines = published()
            reward_baselines = torch.tensor([baselines.get(uid, 0.0) for uid in index]).to(token_level_rewards)
        return module.compute_remax_outcome_advantage(token_level_rewards, reward_baselines, response_mask)


def take_metrics(uids: Iterable[str]) -> dict[str, float]:
    """Return the step's mean `agent/greedy_reward`, and remove the rewards of its prompts from TransferQueue."""
    import transfer_queue as tq

    prompts = set(uids)
    used = {uid: reward for uid, reward in published().items() if uid in prompts}
    if used:
        tq.kv_clear(keys=list(used), partition_id=BASELINES_PARTITION)
    return {"agent/greedy_reward": sum(used.values()) / len(used) if used else math.nan}


def published() -> dict[str, float]:
    """Return the greedy rewards by prompt id."""
    import transfer_queue as tq

    tags = (tq.kv_list(BASELINES_PARTITION) or {}).get(BASELINES_PARTITION, {})
    return {uid: tag["reward"] for uid, tag in tags.items()}
