"""Keeps the rows of every training batch in their order, with their advantages, beside the trace.

verl v1 hands a batch from stage to stage as names of rows in its TransferQueue, and keeps no record of which were
trained on together. The advantages are taken where verl computes them, so nothing is fetched for this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_rl.settings.episode import TraceSettings
from agent_rl.trace import TraceWriter, TrainedBatch

__all__ = ["keep"]


def keep(settings: TraceSettings, step: int, update: int, batch: Any, data: Any) -> None:
    """Write the batch of one of a step's updates, whose tensors are in `data`, beside a trace that keeps tokens."""
    if settings.path is not None and settings.tokens:
        writer = TraceWriter.shared(settings.path, settings.part_bytes, settings.image_bytes)
        writer.batch(lambda: _batch(step, update, batch, data))


def _batch(step: int, update: int, batch: Any, data: Any) -> TrainedBatch:
    """The rows of a batch, without those that only fill it up."""
    rows = zip(batch.keys, batch.tags, _advantages(data), strict=True)
    kept = {key: value for key, tag, value in rows if not tag.get("is_padding", False)}
    return TrainedBatch(step, update, list(kept), list(kept.values()))


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
