"""Starts the servers of `agent_rl.reward.models` and writes their addresses into the configuration.

verl serves one reward model. With agent_rl, each model has its own replicas of verl's server, on separate GPUs or on
the trainer's, where a model is loaded only while it scores; verl's router distributes requests among replicas. The
servers start after the trainer's placement groups but before its workers, so a small model cannot split a node that the
trainer needs.

In the `reward_model` component, a model without a `url` is the served model of the same name; its tokenizer path, kind,
engine and temperature are filled in unless the component sets them. Any other URL under `agent_rl` can refer to a
served model as `http://served/<name>`, for example `http://served/critic/v1` for a judge.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf, open_dict

from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings

KIND = "reward_model"
"""The kind of component that refers to served models by name."""
ROUTER_MODEL = "reward_model"
"""The name of verl's reward model in components, and of the component that is added if no component uses it."""

_PLACE = re.compile(r"^http://served/(?P<name>[A-Za-z0-9_.-]+)(?=/|$)")


Served = tuple[str, ServedModelSettings]
"""The address of a served model, `http://host:port`, and its settings."""


def write_addresses(config: Any, served: Mapping[str, Served]) -> None:
    """Write the served models' addresses into the run's configuration, before the workers read it."""
    section = OmegaConf.to_container(config[SECTION], resolve=True)
    for _, name, holder, part in list(references(section)):
        if model := served.get(name):
            value = holder[part]
            is_url = isinstance(value, str)
            holder[part] = _PLACE.sub(model[0], value) if is_url else _entry(value or {}, *model)
    with open_dict(config):
        config[SECTION] = section


def rollout_config(config: Any, model: ServedModelSettings) -> Any:
    """Return a model's rollout configuration, which is `reward.reward_model.rollout` with the model's settings."""
    rollout = OmegaConf.to_container(config.reward.reward_model.rollout, resolve=True)
    assert isinstance(rollout, dict)
    kwargs: dict[str, Any] = dict(rollout.get("engine_kwargs") or {})
    embeds = {"is_embedding": True} if model.engine == "sglang" and model.kind == "discriminative" else {}
    kwargs[model.engine] = {**(kwargs.get(model.engine) or {}), **embeds, **model.engine_kwargs}
    return OmegaConf.create(
        rollout
        | {
            "name": model.engine,
            "tensor_model_parallel_size": model.tensor_parallel_size,
            "gpu_memory_utilization": model.gpu_memory_utilization,
            "temperature": model.temperature,
            "max_model_len": model.max_model_len,
            "free_cache_engine": model.visits,
            "skip_tokenizer_init": False,
            "engine_kwargs": kwargs,
        }
    )


class ServedModels:
    """The running servers of all reward models of a run.

    Args:
        config: the trainer's whole configuration.
        models: `agent_rl.reward.models`.
        pools: verl's `ResourcePoolManager`, after it has created its pools.
    """

    def __init__(self, config: Any, models: Mapping[str, ServedModelSettings], pools: Any) -> None:
        from verl.utils.device import get_device_name

        for pool in pools.resource_pool_dict.values():
            pool.get_placement_groups(device_name=get_device_name())
        self._replicas = {name: _replicas(config, name, model, pools) for name, model in models.items()}
        _run(
            replica.init_standalone() if pool is None else replica.init_colocated(pool)
            for replicas in self._replicas.values()
            for replica, pool in replicas
        )
        self._shared = [replica for name in models if models[name].visits for replica, _ in self._replicas[name]]
        self.sleep()
        self.served = {name: (self._address(name), model) for name, model in models.items()}

    def wake_up(self) -> None:
        """Load the models that share the trainer's GPUs."""
        _run(replica.wake_up() for replica in self._shared)

    def sleep(self) -> None:
        """Unload the models that share the trainer's GPUs."""
        _run(replica.sleep() for replica in self._shared)

    def _address(self, name: str) -> str:
        addresses = [replica.server_address for replica, _ in self._replicas[name]]
        if len(addresses) == 1:
            return f"http://{addresses[0]}"
        from verl.experimental.reward_loop.router.naive_router import launch_router_process

        address, _ = launch_router_process(worker_urls=[f"http://{address}" for address in addresses])
        return f"http://{address}"


def references(section: Any, key: str = SECTION) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield each reference to a served model in a section: its key, name, containing dict or list, and index."""
    match section:
        case {"kind": kind, "config": {"models": Mapping() as models}} if kind == KIND:
            for name, entry in models.items():
                if not (isinstance(entry, Mapping) and entry.get("url")):
                    yield f"{key}.config.models.{name}", name, models, name
    is_list = isinstance(section, list)
    for part, value in enumerate(section) if is_list else section.items() if isinstance(section, Mapping) else ():
        place = f"{key}[{part}]" if is_list else f"{key}.{part}"
        if not isinstance(value, str):
            yield from references(value, place)
        elif url := _PLACE.match(value):
            yield place, url["name"], section, part


def _replicas(config: Any, name: str, model: ServedModelSettings, pools: Any) -> list[tuple[Any, Any]]:
    """Return the model's unstarted replicas, each with its part of the trainer's pool (None if it has its own GPUs)."""
    from verl.single_controller.ray.base import split_resource_pool
    from verl.workers.rollout.replica import get_rollout_replica_class

    rollout = rollout_config(config, model)
    size = int(rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size)
    parts: list[Any]
    if model.visits:
        parts = split_resource_pool(pools.resource_pool_dict["global_pool"], split_size=size)
        gpus_per_node = config.trainer.n_gpus_per_node
    else:
        parts = [None] * (model.n_gpus_per_node * model.nnodes // size)
        gpus_per_node = model.n_gpus_per_node
    # The path is not resolved here, because each server loads the model's files on its own node.
    model_config = OmegaConf.create({"_target_": "verl.workers.config.HFModelConfig", "path": model.path})
    make = functools.partial(
        get_rollout_replica_class(model.engine),
        config=rollout,
        model_config=model_config,
        gpus_per_node=gpus_per_node,
        is_reward_model=True,
        name_suffix=f"agent_rl_{name}",
    )
    return [(make(replica_rank=rank), part) for rank, part in enumerate(parts)]


def _run(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    async def gather() -> None:
        await asyncio.gather(*coroutines)

    asyncio.run(gather())


def _entry(entry: Mapping[str, Any], address: str, settings: ServedModelSettings) -> dict[str, Any]:
    known = {
        "kind": settings.kind,
        "engine": settings.engine,
        "model": settings.path,
        "tokenizer": settings.path,
        "temperature": settings.temperature,
    }
    return known | {key: value for key, value in entry.items() if value is not None} | {"url": address}
