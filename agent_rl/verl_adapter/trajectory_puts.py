"""`together`: stores a worker's trajectories that end at about the same time with a single put.

verl stores each trajectory separately, in three requests to two processes, which took a quarter of a worker's time. As
all workers send their requests to TransferQueue's only controller, these requests limit the number of trajectories per
second in a cluster (docs/reference/scale.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict


def together(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.agent_loop_tq`: store trajectories together; verl has no extension point for its puts."""
    module.tq = _TogetherQueue(module.tq, module.list_of_dict_to_tensordict)  # type: ignore[attr-defined]


class _TogetherQueue:
    """Wraps the `transfer_queue` module: puts wait for a running put of the same kind, and are then sent together.

    Ray pickles the queue together with the worker's class, at a time when no put is waiting.
    """

    def __init__(self, queue: Any, to_tensordict: Any) -> None:
        self._queue, self._to_tensordict = queue, to_tensordict
        self._waiting: dict[Hashable, SimpleNamespace] = {}
        """Trajectories, or only tags, that are waiting to be stored."""
        self._under_way: dict[Hashable, asyncio.Lock] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle looks names up before `_queue` is set
            raise AttributeError(name)
        return getattr(self._queue, name)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        await self.async_kv_batch_put([key], None, [tag], partition_id)

    async def async_kv_batch_put(
        self, keys: list[str], fields: TensorDict | None, tags: list[dict[str, Any]], partition_id: str
    ) -> None:
        rows = [] if fields is None else _rows(fields)
        kind = (partition_id, frozenset(rows[0]) if rows else None)
        put = self._waiting.get(kind)
        if put is None:
            put = self._waiting[kind] = SimpleNamespace(keys=[], fields=[], tags=[])
            put.done = asyncio.create_task(self._store(kind))
        put.keys += keys
        put.fields += rows
        put.tags += tags
        await asyncio.shield(put.done)

    async def _store(self, kind: tuple[str, Any]) -> None:
        async with self._under_way.setdefault(kind, asyncio.Lock()):
            put = self._waiting.pop(kind)
            fields = self._to_tensordict(put.fields) if put.fields else None
            await self._queue.async_kv_batch_put(keys=put.keys, fields=fields, tags=put.tags, partition_id=kind[0])


def _rows(fields: TensorDict) -> list[dict[str, Any]]:
    """Return the rows of a TensorDict as dicts."""
    columns = {
        name: column.unbind() if isinstance(column, torch.Tensor) else column.tolist()
        for name, column in fields.items()
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
