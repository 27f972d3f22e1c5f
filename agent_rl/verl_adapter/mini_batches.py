"""Splits batches whose number of rows varies into as many mini-batches as the configuration asks for.

A batch has a row for each training sequence, and an agent that folds its history has several for a trajectory. verl
fills up such a batch with rows that teach nothing, until whole mini-batches of `ppo_mini_batch_size` prompts are full.
The last mini-batch may then be mostly such rows, and is an update with the full learning rate all the same. Here a
batch has one mini-batch for each `ppo_mini_batch_size` of its prompts, all with the same number of rows, and is filled
up until its rows divide among them and the GPUs.

A batch that fills its mini-batches exactly, as without such an agent, is left to verl.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["even_mini_batches", "mini_batches", "trained_keys"]


def trained_keys(batch: Any) -> list[str]:
    """The keys of a batch, without those of the rows that only fill it up."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def mini_batches(trainer: Any, part: Any) -> int:
    """Mini-batches of a batch; `part` is the configuration of the actor or of the critic."""
    prompts: int = trainer.config.data.train_batch_size // trainer.parameter_sync_step
    return max(1, math.ceil(prompts / int(part.ppo_mini_batch_size)))


def even_mini_batches(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: fill up batches by as little as possible, and split them evenly."""
    trainer = module.PPOTrainer
    trainer._get_required_batch_multiple = _multiple
    actor = (lambda config: config.actor_rollout_ref.actor), "actor_rollout_wg", "update_actor"
    critic = (lambda config: config.critic), "critic_wg", "train_mini_batch"
    trainer._update_actor = _split(trainer._update_actor, *actor)
    trainer._update_critic = _split(trainer._update_critic, *critic)


def _multiple(self: Any, dp_size: int) -> int:
    """What the number of rows is filled up to a multiple of; in place of verl's method."""
    config = self.config
    policy = config.actor_rollout_ref
    parts = [_rows_of_one_gpu(mini_batches(self, policy.actor), policy.actor)]
    if self.use_critic:
        parts.append(_rows_of_one_gpu(mini_batches(self, config.critic), config.critic))
    for each in (policy.rollout, policy.ref):  # these pass through a batch in one piece
        if not each.log_prob_use_dynamic_bsz:
            parts.append(each.log_prob_micro_batch_size_per_gpu or 1)
    return dp_size * math.lcm(*parts)


def _rows_of_one_gpu(number: int, part: Any) -> int:
    """What the rows of one GPU must be a multiple of: micro-batches of a fixed size must be full."""
    micro = 1 if part.use_dynamic_bsz else part.ppo_micro_batch_size_per_gpu or 1
    return int(number * micro)


def _split(
    original: Callable[..., Any], part: Callable[[Any], Any], group: str, method: str
) -> Callable[[Any, Any, dict[str, Any]], Any]:
    """An update that gives its workers the number of mini-batches instead of their size."""

    @functools.wraps(original)
    def update(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        number, workers = mini_batches(self, part(self.config)), getattr(self, group)
        rows = len(trained_keys(batch))
        full = number * part(self.config).ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        if rows == len(batch.tags) == full:
            return original(self, batch, metrics)
        if len(batch.tags) - rows >= len(batch.tags) / number:  # a mini-batch of nothing else has no loss
            number = 1

        def run(batch: Any) -> Any:
            del batch.extra_info["mini_batch_size"]
            batch.extra_info.update(num_mini_batch=number, global_batch_size=rows / number)
            return getattr(workers, method)(batch)

        setattr(self, group, SimpleNamespace(**{method: run}))
        try:
            return original(self, batch, metrics)
        finally:
            setattr(self, group, workers)
            batch.extra_info.pop("num_mini_batch", None)  # the critic's; the actor has its own

    return update
