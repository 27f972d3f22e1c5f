"""Splits batches whose number of rows varies into as many mini-batches as the configuration asks for.

A batch has a row for each training sequence, and an agent that folds its history has several for a trajectory. verl
fills up such a batch with rows that teach nothing, until whole mini-batches of `ppo_mini_batch_size` prompts are full.
The last mini-batch may then be mostly such rows, and is an update with the full learning rate all the same. Here a
batch has one mini-batch for each `ppo_mini_batch_size` of its prompts, all with the same number of rows, and is filled
up until its rows divide among them and the GPUs.

A batch that fills its mini-batches exactly, as without such an agent, is left to verl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

__all__ = ["evenly_split", "mini_batches", "required_multiple", "trained_keys"]


def trained_keys(batch: Any) -> list[str]:
    """The keys of a batch, without those of the rows that only fill it up."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def mini_batches(trainer: Any, part: Any) -> int:
    """Mini-batches of a batch; `part` is the configuration of the actor or of the critic."""
    prompts: int = trainer.config.data.train_batch_size // trainer.parameter_sync_step
    return max(1, math.ceil(prompts / int(part.ppo_mini_batch_size)))


def required_multiple(trainer: Any, dp_size: int) -> int:
    """What the number of rows is filled up to a multiple of."""
    config = trainer.config
    policy = config.actor_rollout_ref
    parts = [_rows_of_one_gpu(mini_batches(trainer, policy.actor), policy.actor)]
    if trainer.use_critic:
        parts.append(_rows_of_one_gpu(mini_batches(trainer, config.critic), config.critic))
    for each in (policy.rollout, policy.ref):  # these pass through a batch in one piece
        if not each.log_prob_use_dynamic_bsz:
            parts.append(each.log_prob_micro_batch_size_per_gpu or 1)
    return dp_size * math.lcm(*parts)


@contextmanager
def evenly_split(trainer: Any, batch: Any, part: Any, group: str, method: str) -> Iterator[None]:
    """In this block the trainer's workers get the number of mini-batches instead of their size.

    Args:
        trainer: verl's.
        batch: that is used for the update.
        part: the configuration of the actor or of the critic.
        group: the trainer's attribute with the workers.
        method: of the workers, which makes the update.
    """
    number, workers = mini_batches(trainer, part), getattr(trainer, group)
    rows = len(trained_keys(batch))
    if rows == len(batch.tags) == number * part.ppo_mini_batch_size * trainer.config.actor_rollout_ref.rollout.n:
        yield
        return
    if len(batch.tags) - rows >= len(batch.tags) / number:  # a mini-batch of nothing else has no loss
        number = 1

    def run(batch: Any) -> Any:
        del batch.extra_info["mini_batch_size"]
        batch.extra_info.update(num_mini_batch=number, global_batch_size=rows / number)
        return getattr(workers, method)(batch)

    setattr(trainer, group, SimpleNamespace(**{method: run}))
    try:
        yield
    finally:
        setattr(trainer, group, workers)
        batch.extra_info.pop("num_mini_batch", None)  # the critic's; the actor has its own


def _rows_of_one_gpu(number: int, part: Any) -> int:
    """What the rows of one GPU must be a multiple of: micro-batches of a fixed size must be full."""
    micro = 1 if part.use_dynamic_bsz else part.ppo_micro_batch_size_per_gpu or 1
    return int(number * micro)
