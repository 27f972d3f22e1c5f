"""Keeps the rows of every training batch in their order, with their advantages, beside the trace.

verl v1 hands a batch from stage to stage as names of rows in its TransferQueue, and keeps no record of which were
trained on together. The advantages are taken where verl computes them, so nothing is fetched for this.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from agent_rl.settings import AgentRLSettings
from agent_rl.trace import TraceWriter, TrainedBatch

__all__ = ["keep_batches"]


def keep_batches(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: write a batch into the trace when its advantages are there."""
    original = module.PPOTrainer._compute_advantage

    @functools.wraps(original)
    def compute(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, batch, *args, **kwargs)
        writer, data = _writer(self), vars(self).pop("_agent_rl_advantages", None)
        if writer is not None and data is not None:
            update = getattr(self, "local_trigger_step", 0)
            writer.batch(lambda: _batch(self.global_steps, update, batch, data))
        return result

    module.PPOTrainer._compute_advantage = compute


def _batch(step: int, update: int, batch: Any, data: Any) -> TrainedBatch:
    """The rows of a batch, without those that only fill it up."""
    kept = [not tag.get("is_padding", False) for tag in batch.tags]
    names = [key for key, wanted in zip(batch.keys, kept, strict=True) if wanted]
    values = [value for value, wanted in zip(_advantages(data), kept, strict=True) if wanted]
    return TrainedBatch(step, update, names, values)


def _advantages(data: Any) -> Iterator[float | list[float]]:
    """Of each row: one number where all tokens that count have the same, or one for each token of the response."""
    values, mask = data.batch["advantages"], data.batch["response_mask"].bool()
    lowest = values.masked_fill(~mask, float("inf")).amin(dim=1)
    highest = values.masked_fill(~mask, float("-inf")).amax(dim=1)
    lengths = (mask.shape[1] - mask.flip(1).int().argmax(dim=1)).tolist()  # a response ends with a sampled token
    for row, (low, high, length) in enumerate(zip(lowest.tolist(), highest.tolist(), lengths, strict=True)):
        if low >= high:
            yield low if low == high else 0.0  # no token counts
        else:
            yield (values[row] * mask[row])[:length].tolist()


def _writer(trainer: Any) -> TraceWriter | None:
    """The trace of the trainer's run; None: it keeps no batches."""
    if not hasattr(trainer, "_agent_rl_batches"):
        kept = AgentRLSettings.from_config(trainer.config).trace
        writes = kept.path is not None and kept.tokens
        trainer._agent_rl_batches = (
            TraceWriter.shared(str(kept.path), kept.part_bytes, kept.image_bytes) if writes else None
        )
    writer: TraceWriter | None = trainer._agent_rl_batches
    return writer
