"""Patches of verl 0.9.1 that make a small run on a CPU faster, where verl has no setting.

These patches do not matter on a GPU with a large model. Each patch has a test that fails when the patch is no longer
needed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Hashable
from types import ModuleType, SimpleNamespace
from typing import Any

from hydra.errors import InstantiationException

POLL_INTERVAL_S = 0.05

IMAGES = "multi_modal_inputs"
"""verl's field for a model's inputs other than tokens: a dict for each row, empty if there are no images."""


def loop_construction(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: create an agent loop by calling its class.

    verl lets hydra create a loop for each trajectory. Hydra copies and merges a configuration with one key, which takes
    nine tenths of a loop's creation time. Hydra still creates a loop that is registered with more than its class.
    """
    original = module.hydra

    def instantiate(config: Any, **kwargs: Any) -> Any:
        if set(config) != {"_target_"}:
            return original.utils.instantiate(config=config, **kwargs)
        try:
            return original.utils.get_class(config["_target_"])(**kwargs)
        except Exception as error:  # the user's class may raise any error: verl expects hydra's wrapper
            raise InstantiationException(f"{config['_target_']} cannot be created: {error!r}") from error

    module.hydra = SimpleNamespace(utils=SimpleNamespace(instantiate=instantiate))  # type: ignore[attr-defined]


def replay_buffer_polling(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.replay_buffer`: poll for finished trajectories more often than every two seconds.

    The interval is a constructor argument for which verl has no configuration key; on a laptop, where a step takes one
    or two seconds, verl's value would double the step's time.
    """
    original = module.ReplayBuffer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("poll_interval", POLL_INTERVAL_S)
        original(self, *args, **kwargs)

    module.ReplayBuffer.__init__ = init


def single_server(module: ModuleType) -> None:
    """`verl.workers.rollout.llm_server`: if there is one server, call the load balancer once.

    Two of three actor calls for each turn go to the load balancer; on two cores they took a tenth of a step. Trainers
    that add and remove servers while they run have their own client class, which is not changed.
    """
    client = module.LLMServerClient
    acquire, release = client._acquire_server, client._release_server

    @functools.wraps(acquire)
    async def acquire_server(self: Any, request_id: str, **extra: Any) -> Any:
        if type(self) is not client:
            return await acquire(self, request_id, **extra)
        if not hasattr(self, "_only_server"):
            servers = await self._load_balancer.get_all_servers.remote()
            first = await acquire(self, request_id, **extra)
            self._only_server = first if len(servers) == 1 else None
            return first
        return self._only_server or await acquire(self, request_id, **extra)

    @functools.wraps(release)
    def release_server(self: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(self, "_only_server", None) is None:
            release(self, *args, **kwargs)

    client._acquire_server, client._release_server = acquire_server, release_server


def trajectory_puts(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.agent_loop_tq`: store the trajectories that end at about the same time together.

    verl stores each trajectory separately, in three requests to two processes, which took a quarter of a worker's time.
    """
    module.tq = _TogetherQueue(module.tq, module.list_of_dict_to_tensordict)  # type: ignore[attr-defined]
    module.list_of_dict_to_tensordict = lambda fields: fields  # type: ignore[attr-defined]


def fetched_tensors(module: ModuleType) -> None:
    """`verl.utils.transferqueue_utils`: send a training worker only a batch's tensors and `IMAGES`.

    verl sends the worker all stored fields of a trajectory: prompts as messages, ground truths, reward components.
    Decoding these fields, and copying them for each mini-batch, took a tenth of an update.
    """
    original = module._async_meta_to_realdata

    @functools.wraps(original)
    async def to_data(meta: Any) -> Any:
        if isinstance(meta, module.KVBatchMeta):
            meta = await module.async_kv_batch_meta2batch_meta(meta)
        schema = meta.field_schema.items()
        read = [name for name, field in schema if name == IMAGES or not field.get("is_non_tensor")]
        return await original(meta.select_fields(read))

    module._async_meta_to_realdata = to_data  # type: ignore[attr-defined]


class _TogetherQueue:
    """The `transfer_queue` module with puts that wait for a running put of the same kind, and are then sent together.

    Ray pickles the queue together with the worker's class, while no put waits.
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
        self, keys: list[str], fields: list[dict[str, Any]] | None, tags: list[dict[str, Any]], partition_id: str
    ) -> None:
        kind = (partition_id, fields and frozenset(fields[0]))
        put = self._waiting.get(kind)
        if put is None:
            put = self._waiting[kind] = SimpleNamespace(keys=[], fields=[], tags=[])
            put.done = asyncio.create_task(self._store(kind))
        put.keys += keys
        put.fields += fields or []
        put.tags += tags
        await asyncio.shield(put.done)

    async def _store(self, kind: tuple[str, Any]) -> None:
        async with self._under_way.setdefault(kind, asyncio.Lock()):
            put = self._waiting.pop(kind)
            fields = self._to_tensordict(put.fields) if put.fields else None
            await self._queue.async_kv_batch_put(keys=put.keys, fields=fields, tags=put.tags, partition_id=kind[0])
