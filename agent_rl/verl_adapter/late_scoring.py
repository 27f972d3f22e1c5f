"""Patches for scoring after sampling, with a reward model that shares the trainer's GPUs.

verl then gives its reward workers only prompt and response: no ground truth and no trajectory. One trajectory that
cannot be scored fails the whole step, and what a manager reports is not logged. Here the reward manager `trajectory`
gets the same data as during sampling, the samples of a prompt go to one worker, and a trajectory that cannot be scored
is dropped from the batch and counted. Other managers are not changed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf, open_dict

from agent_rl.errors import AgentRLError, FatalError, UnscoredError
from agent_rl.rewards import groups
from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.trajectory import Trajectory
from agent_rl.verl_adapter.failures import ERRORS_PARTITION
from agent_rl.verl_adapter.served_models import KIND, Served, named, write_addresses
from agent_rl.verl_adapter.survivors import finals, session_of

__all__ = [
    "MANAGER",
    "ROUTER_MODEL",
    "after_sampling",
    "ask_our_manager",
    "awake_in_its_own_pool",
    "late_handles",
]

MANAGER = "trajectory"
"""The reward manager that these patches are for."""
ROUTER_MODEL = "reward_model"
"""The name of verl's own reward model for components, and of the component that is added if none uses it."""


def ask_our_manager(module: ModuleType) -> None:
    """`verl.experimental.reward_loop.reward_loop`: call the manager `trajectory` also if there is a reward model.

    verl would score only with the model. Instead, its address is added to the configuration, where a component finds
    it.
    """
    original_init = module.RewardLoopManager._init_reward_loop_workers
    original_score = module.RewardLoopWorker.compute_score

    @functools.wraps(original_init)
    def init(self: Any) -> None:
        reward = self.config.reward
        if reward.reward_manager.name == MANAGER and self.reward_router_address and not _custom(reward):
            _add_component(self.config, self.reward_router_address)
        original_init(self)

    @functools.wraps(original_score)
    async def compute_score(self: Any, data: Any) -> Any:
        if self.config.reward.reward_manager.name == MANAGER:
            return await self.reward_manager.run_single(data)
        return await original_score(self, data)

    async def score_each(self: Any, data: Any) -> list[Any]:
        """A result or an exception for each trajectory."""
        tasks = [asyncio.create_task(self.compute_score(data[index : index + 1])) for index in range(len(data))]
        uids = data.non_tensor_batch["uid"].tolist()
        for uid in dict.fromkeys(uids):
            groups.expect([task for task, own in zip(tasks, uids, strict=True) if own == uid])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [_portable(result) if isinstance(result, BaseException) else result for result in results]

    module.RewardLoopManager._init_reward_loop_workers = init
    module.RewardLoopWorker.compute_score = compute_score
    module.RewardLoopWorker.score_each = score_each


def late_handles(module: ModuleType) -> None:
    """`verl.experimental.reward_loop.reward_loop`: no reward workers for sampling, when a served model shares the GPUs.

    verl looks at its own reward model only.
    """
    original_handles = module.RewardLoopManager.reward_loop_worker_handles.fget

    def handles(self: Any) -> Any:
        models = (OmegaConf.select(self.config, f"{SECTION}.reward.models") or {}).values()
        if any(model.get("placement", "own") != "own" for model in models):
            return None
        return original_handles(self)

    module.RewardLoopManager.reward_loop_worker_handles = property(handles)


def awake_in_its_own_pool(module: ModuleType) -> None:
    """`verl.experimental.reward_loop.reward_loop`: wake verl's reward model when it has GPUs of its own.

    With `free_cache_engine`, which is the default, verl puts it to sleep at its start, and wakes it only to score after
    sampling: while trajectories are sampled, it would have neither weights nor cache.
    """
    original = module.RewardLoopManager._init_reward_loop_workers

    @functools.wraps(original)
    def init(self: Any) -> None:
        model = self.config.reward.reward_model
        if model.enable and model.enable_resource_pool and model.rollout.free_cache_engine:
            self.reward_model_manager.wake_up()
        original(self)

    module.RewardLoopManager._init_reward_loop_workers = init


def after_sampling(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: score a sampled batch with the manager `trajectory`."""
    original = module.PPOTrainer._compute_reward_colocate

    @functools.wraps(original)
    def compute(self: Any, batch: Any, metrics: dict[str, Any] | None = None) -> Any:
        if self.config.reward.reward_manager.name != MANAGER:
            return original(self, batch, metrics)
        keys = finals(batch.keys)
        if not keys:  # of a validation
            return batch
        with _awake(self):
            results = _scored(self, module, batch, keys)
        try:
            return _written(module, batch, dict(zip(keys, results, strict=True)))
        except AgentRLError:
            _put_back(module, batch)
            raise

    module.PPOTrainer._compute_reward_colocate = compute


def _custom(reward: Any) -> bool:
    return OmegaConf.select(reward, "custom_reward_function.path") is not None


def _add_component(config: Any, address: str) -> None:
    """Let components find verl's reward model, and add a component if none uses it."""
    model = config.reward.reward_model
    with open_dict(config):
        section = OmegaConf.to_container(config.get(SECTION) or OmegaConf.create(), resolve=True)
        assert isinstance(section, dict)
        components = section.setdefault("reward", {}).setdefault("components", {})
        if not any(name == ROUTER_MODEL for _, name in named(section)):
            components[ROUTER_MODEL] = {"kind": KIND, "config": {"models": {ROUTER_MODEL: {}}}}
        config[SECTION] = section
    settings = ServedModelSettings(path=model.model_path, engine=model.rollout.name)
    write_addresses(config, {ROUTER_MODEL: Served(f"http://{address}", settings)})


@contextmanager
def _awake(trainer: Any) -> Iterator[None]:
    """Load the models that share the trainer's GPUs for this block; verl's own model has a separate manager."""
    shares = not trainer.config.reward.reward_model.enable_resource_pool
    verls = trainer.reward_loop_manager.reward_model_manager if shares else None
    managers = [manager for manager in (trainer.served_models, verls) if manager is not None]
    try:
        for manager in managers:
            manager.wake_up()
        yield
    finally:
        for manager in managers:
            manager.sleep()


def _scored(trainer: Any, module: ModuleType, batch: Any, keys: list[str]) -> list[Any]:
    """The manager's result or an exception for each trajectory, in order; the samples of a prompt share a worker.

    Without reward workers, the trainer's process scores them.
    """
    data = _as_handed_over(module, keys, batch.partition_id)
    manager = trainer.reward_loop_manager
    workers = manager.reward_loop_workers
    if not workers:  # reward.num_workers=0
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

        if not hasattr(trainer, "late_worker"):
            trainer.late_worker = RewardLoopWorker(trainer.config, manager.reward_router_address)
        scored: list[Any] = asyncio.run(trainer.late_worker.score_each(data))
        return scored
    of_uid = {uid: place for place, uid in enumerate(dict.fromkeys(key.split("_")[0] for key in keys))}
    places: list[list[int]] = [[] for _ in workers]
    for index, key in enumerate(keys):
        places[of_uid[key.split("_")[0]] % len(workers)].append(index)
    chosen = [(rows, worker) for rows, worker in zip(places, workers, strict=True) if rows]
    answers = asyncio.run(_gathered([worker.score_each.remote(data.select_idxs(rows)) for rows, worker in chosen]))
    results: list[Any] = [None] * len(keys)
    for (rows, _), answer in zip(chosen, answers, strict=True):
        for row, result in zip(rows, answer, strict=True):
            results[row] = result
    return results


async def _gathered(replies: Sequence[Awaitable[list[Any]]]) -> list[list[Any]]:
    return await asyncio.gather(*replies)


def _as_handed_over(module: ModuleType, keys: list[str], partition: str) -> Any:
    """The trajectories in the form in which an agent-loop worker sends them, with what our reward manager reads."""
    import numpy as np
    from tensordict import TensorDict
    from torch.nn.utils.rnn import pad_sequence
    from verl import DataProto

    fields = ["responses", "num_turns", "uid", "extra_fields"]
    data = module.tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=fields)
    responses, extra_fields = list(data["responses"].unbind()), _objects(data["extra_fields"])
    for extra in extra_fields:  # verl has stored the dataclass as a dict
        extra[MANAGER] = Trajectory.from_dict(extra[MANAGER])
    columns = {
        "uid": _objects(data["uid"]),
        "tool_extra_fields": extra_fields,
        "__num_turns__": np.array([int(turns) for turns in data["num_turns"]]),
        "response_len": np.array([len(response) for response in responses]),
    }
    tensors = {"responses": pad_sequence(responses, batch_first=True)}
    return DataProto(batch=TensorDict(tensors, batch_size=len(keys)), non_tensor_batch=columns)


def _objects(values: Any) -> Any:
    """One Python object for each row."""
    import numpy as np

    objects = np.empty(len(values), dtype=object)
    objects[:] = [getattr(value, "data", value) for value in values]
    return objects


def _put_back(module: ModuleType, batch: Any) -> None:
    """Make the prompts of a batch finished again: a checkpoint of an asynchronous mode is resumed from these."""
    steps = {key.split("_")[0]: tag["global_steps"] for key, tag in zip(batch.keys, batch.tags, strict=True)}
    tags = [{"is_prompt": True, "status": "finished", "global_steps": step} for step in steps.values()]
    module.tq.kv_batch_put(keys=list(steps), partition_id=batch.partition_id, tags=tags)


def _written(module: ModuleType, batch: Any, results: dict[str, Any]) -> Any:
    """Store the scores in TransferQueue, and return the batch without unscored trajectories.

    Raises:
        FatalError: a trajectory could not be scored because the configuration or code is wrong.
        UnscoredError: none of a training's could be scored.
    """
    failed = {key: result for key, result in results.items() if isinstance(result, BaseException)}
    for error in failed.values():
        if isinstance(error, FatalError):
            raise error
    if failed:
        validate = batch.partition_id != "train"
        reasons = [f"{type(error).__name__}: {error}" for error in failed.values()]
        tags = [
            {"error": reason, "fatal": False, "validate": validate, "tokens": None, "turns": None} for reason in reasons
        ]
        module.tq.kv_batch_put(keys=list(map(session_of, failed)), partition_id=ERRORS_PARTITION, tags=tags)
        if len(failed) == len(results) and not validate:
            raise UnscoredError(
                f"no trajectory of the step is usable: {len(failed)} failed, the last with: {reasons[-1]}"
            )
        gone = {session_of(key) for key in failed}
        lost = [key for key in batch.keys if session_of(key) in gone]
        module.tq.kv_clear(keys=lost, partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if key not in set(lost)])
    if batch.keys:
        _write(module, batch, {session_of(key): result for key, result in results.items()})
    return batch


def _write(module: ModuleType, batch: Any, results: dict[str, Any]) -> None:
    """Give every sequence of a trajectory its score, at the last token trained on, and what the manager reports."""
    import torch
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    data = module.tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "extra_fields"]
    )
    rows = []
    for key, mask, extra in zip(batch.keys, data["response_mask"].unbind(), data["extra_fields"], strict=True):
        result = results[session_of(key)]
        scores = torch.zeros(len(mask), dtype=torch.float32)
        scores[mask.nonzero()[-1] if mask.any() else -1] = result["reward_score"]
        fields = dict(getattr(extra, "data", extra)) | {"reward_extra_info": result["reward_extra_info"]}
        fields.pop(MANAGER, None)  # the trainer fetches the others at each step
        rows.append({"rm_scores": scores, "extra_fields": fields})
    module.tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(rows))


def _portable(error: BaseException) -> BaseException:
    """The error as one that can be pickled."""
    if isinstance(error, FatalError):
        return error
    reason = str(error) if isinstance(error, UnscoredError) else f"{type(error).__name__}: {error}"
    return UnscoredError(reason)
