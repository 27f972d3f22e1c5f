"""Starts the servers of `agent_rl.reward.models` and writes their addresses into the configuration.

verl serves one reward model, `reward.reward_model`. Here each of several models has its own replicas of verl's server:
on its own GPUs, or on the trainer's, where it sleeps except while it scores. Several replicas of a model are behind
verl's router. The servers start before the trainer's workers, but the trainer's placement groups are created first, so
that a small model cannot split a node that the trainer needs.

The workers get the configuration with the addresses. A model of the component `reward_model` without a `url` is the
served one of the same name; it also gets the path of the tokenizer, the kind, the engine and the temperature, unless
the component sets them. Any other URL below `agent_rl` can name a served model as `http://served/<name>`, for example
`http://served/critic/v1` for a judge.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf, open_dict

from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings

__all__ = [
    "KIND",
    "ROUTER_MODEL",
    "Served",
    "ServedModels",
    "fill_in",
    "make_room",
    "named",
    "rollout_config",
    "write_addresses",
]

KIND = "reward_model"
"""The kind of component that refers to served models by name."""
ROUTER_MODEL = "reward_model"
"""The name of verl's own reward model for components, and of the component that is added if none uses it."""

_PLACE = re.compile(r"^http://served/(?P<name>[A-Za-z0-9_.-]+)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Served:
    """A served model and its address."""

    address: str
    """`http://host:port`."""
    settings: ServedModelSettings


def make_room(pools: Any, models: Mapping[str, ServedModelSettings]) -> None:
    """Let the models that visit the trainer's GPUs run there: verl's `ResourcePoolManager` allows for three workers."""
    pools.max_colocate_count = max(pools.max_colocate_count, 2 + sum(model.visits for model in models.values()))


def write_addresses(config: Any, served: Mapping[str, Served]) -> None:
    """Put the addresses into the run's configuration, before the workers get it."""
    with open_dict(config):
        config[SECTION] = fill_in(OmegaConf.to_container(config[SECTION], resolve=True), served)


def rollout_config(config: Any, model: ServedModelSettings) -> Any:
    """The rollout configuration of one model: `reward.reward_model.rollout` with the model's own settings."""
    rollout = OmegaConf.to_container(config.reward.reward_model.rollout, resolve=True)
    assert isinstance(rollout, dict)
    kwargs: dict[str, Any] = dict(rollout.get("engine_kwargs") or {})
    own: dict[str, Any] = dict(kwargs.get(model.engine) or {})
    if model.engine == "sglang" and model.kind != "generative":
        own["is_embedding"] = True
    kwargs[model.engine] = own | model.engine_kwargs
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
        self.served = {name: Served(self._address(name), model) for name, model in models.items()}

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


def fill_in(section: Any, served: Mapping[str, Served]) -> Any:
    """A copy of a section of plain data with the served models' addresses filled in."""
    if isinstance(section, Mapping):
        filled = {key: fill_in(value, served) for key, value in section.items()}
        return _component(filled, served) if _is_component(filled) else filled
    if isinstance(section, list):
        return [fill_in(value, served) for value in section]
    place = _PLACE.match(section) if isinstance(section, str) else None
    if place is None or place["name"] not in served:
        return section
    return served[place["name"]].address + section[place.end() :]


def named(section: Any, key: str = SECTION) -> Iterator[tuple[str, str]]:
    """Key and name of every reference to a served model in a section of plain data."""
    if isinstance(section, Mapping):
        if _is_component(section):
            entries = section["config"]["models"]
            yield from ((f"{key}.config.models.{name}", name) for name, entry in entries.items() if not _url(entry))
        for name, value in section.items():
            yield from named(value, f"{key}.{name}")
    elif isinstance(section, list):
        for index, value in enumerate(section):
            yield from named(value, f"{key}[{index}]")
    elif isinstance(section, str) and (place := _PLACE.match(section)):
        yield key, place["name"]


def _replicas(config: Any, name: str, model: ServedModelSettings, pools: Any) -> list[tuple[Any, Any]]:
    """The model's replicas, not yet started, each with its part of the trainer's pool (None: its own GPUs)."""
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
    # Not resolved here: each server loads what it needs of the model on its own node.
    model_config = OmegaConf.create({"_target_": "verl.workers.config.HFModelConfig", "path": model.path})
    make = get_rollout_replica_class(model.engine)
    return [
        (
            make(
                replica_rank=rank,
                config=rollout,
                model_config=model_config,
                gpus_per_node=gpus_per_node,
                is_reward_model=True,
                name_suffix=f"agent_rl_{name}",
            ),
            part,
        )
        for rank, part in enumerate(parts)
    ]


def _run(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    async def gather() -> None:
        await asyncio.gather(*coroutines)

    asyncio.run(gather())


def _is_component(section: Mapping[str, Any]) -> bool:
    config = section.get("config")
    return section.get("kind") == KIND and isinstance(config, Mapping) and isinstance(config.get("models"), Mapping)


def _component(section: dict[str, Any], served: Mapping[str, Served]) -> dict[str, Any]:
    models = {
        name: entry if _url(entry) or name not in served else _entry(entry or {}, served[name])
        for name, entry in section["config"]["models"].items()
    }
    return section | {"config": section["config"] | {"models": models}}


def _entry(entry: Mapping[str, Any], model: Served) -> dict[str, Any]:
    settings = model.settings
    known = {
        "kind": settings.kind,
        "engine": settings.engine,
        "model": settings.path,
        "tokenizer": settings.path,
        "temperature": settings.temperature,
    }
    return known | {key: value for key, value in entry.items() if value is not None} | {"url": model.address}


def _url(entry: Any) -> Any:
    return isinstance(entry, Mapping) and entry.get("url")
