"""The servers of `agent_rl.reward.models`, started before anything else of the run is on its GPUs.

verl serves one reward model, `reward.reward_model`. Here each of several has replicas of its own, made of verl's: on
GPUs of its own, or on the trainer's, where it is asleep except while it scores. Several replicas of a model are behind
verl's router. The trainer's placement groups are taken first, so that a small model cannot split the node that the
trainer needs whole.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Iterable, Mapping
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf, open_dict

from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.serving import ServedModelSettings
from agent_rl.verl_adapter.served_addresses import Served, fill_in

__all__ = ["ServedModels", "reward_pools", "rollout_config", "write_addresses"]


def reward_pools(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: serve the reward models as soon as the resource pools exist.

    verl has one place for one reward model, after the trainer's workers; there is no extension point for more.
    """
    original = module.PPOTrainer._init_resource_pool_mgr

    @functools.wraps(original)
    def init(self: Any) -> None:
        original(self)
        models = AgentRLSettings.from_config(self.config).reward.models
        self.served_models = None
        if not models:
            return
        pools = self.resource_pool_manager
        shared = [model for model in models.values() if model.placement == "shared"]
        # One worker for the trainer and one for each model that shares a GPU; verl allows for three in all.
        pools.max_colocate_count = max(pools.max_colocate_count, 2 + len(shared))
        create = pools.create_resource_pool

        def create_and_serve() -> None:
            create()
            self.served_models = ServedModels(self.config, models, pools)
            write_addresses(self.config, self.served_models.served)

        pools.create_resource_pool = create_and_serve

    module.PPOTrainer._init_resource_pool_mgr = init


def write_addresses(config: Any, served: Mapping[str, Served]) -> None:
    """Put the addresses into the run's configuration, before the workers are given it."""
    with open_dict(config):
        config[SECTION] = fill_in(OmegaConf.to_container(config[SECTION], resolve=True), served)


def rollout_config(config: Any, model: ServedModelSettings) -> Any:
    """What verl takes as one model's engine: `reward.reward_model.rollout` with the model's own settings."""
    rollout = OmegaConf.to_container(config.reward.reward_model.rollout, resolve=True)
    assert isinstance(rollout, dict)
    kwargs: dict[str, Any] = dict(rollout.get("engine_kwargs") or {})
    own: dict[str, Any] = dict(kwargs.get(model.engine) or {})
    if model.engine == "sglang" and model.kind == "discriminative":
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
            "free_cache_engine": model.placement == "shared",
            "skip_tokenizer_init": False,
            "engine_kwargs": kwargs,
        }
    )


class ServedModels:
    """All models of one run.

    Args:
        config: the trainer's whole configuration.
        models: `agent_rl.reward.models`.
        pools: verl's `ResourcePoolManager`, whose pools exist.
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
        self._shared = [
            replica for name in models if models[name].placement == "shared" for replica, _ in self._replicas[name]
        ]
        self.served = {name: Served(self._address(name), model) for name, model in models.items()}
        self.sleep()

    @property
    def shares(self) -> bool:
        """Whether a model is on the trainer's GPUs, so that it can score only while the policy does not sample."""
        return bool(self._shared)

    def wake_up(self) -> None:
        """Load the models that share the trainer's GPUs."""
        _run(replica.wake_up() for replica in self._shared)

    def sleep(self) -> None:
        """Unload them."""
        _run(replica.sleep() for replica in self._shared)

    def _address(self, name: str) -> str:
        addresses = [replica.server_address for replica, _ in self._replicas[name]]
        if len(addresses) == 1:
            return f"http://{addresses[0]}"
        from verl.experimental.reward_loop.router.naive_router import launch_router_process

        address, _ = launch_router_process(worker_urls=[f"http://{address}" for address in addresses])
        return f"http://{address}"


def _replicas(config: Any, name: str, model: ServedModelSettings, pools: Any) -> list[tuple[Any, Any]]:
    """The model's replicas, which are still to be started, and the part of the trainer's pool that each gets."""
    from verl.single_controller.ray.base import split_resource_pool
    from verl.workers.rollout.replica import get_rollout_replica_class

    rollout = rollout_config(config, model)
    size = int(rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size)
    parts: list[Any]
    if model.placement == "shared":
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
