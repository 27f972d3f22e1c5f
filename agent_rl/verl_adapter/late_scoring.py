"""Patches for scoring after sampling, with a reward model that shares the trainer's GPUs.

verl then gives its reward workers only prompt and response: no ground truth and no trajectory. One trajectory that
cannot be scored fails the whole step, and what a manager reports is not logged. Here the reward manager `trajectory`
gets the same data as during sampling, the samples of a prompt go to one worker, and a trajectory that cannot be scored
is dropped from the batch and counted. Other managers are not changed.

Models that are loaded one after another get their turns while all trajectories are scored: a request waits until its
model is loaded (`agent_rl.remote.turns`), and the model for which most requests wait is the next.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf, open_dict

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.remote import turns
from agent_rl.rewards import groups
from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.verl_adapter.failures import ERRORS_PARTITION
from agent_rl.verl_adapter.served_models import KIND, Served, named, write_addresses

__all__ = [
    "MANAGER",
    "ROUTER_MODEL",
    "after_sampling",
    "ask_our_manager",
    "awake_in_its_own_pool",
    "finals",
    "late_handles",
]

MANAGER = "trajectory"
"""The reward manager that these patches are for."""
ROUTER_MODEL = "reward_model"
"""The name of verl's own reward model for components, and of the component that is added if none uses it."""

_ROW = (
    *("raw_prompt", "data_source", "reward_model", "extra_info", "agent_name", "index", "uid", "global_steps"),
    "extra_fields",
)


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

    async def score_each(self: Any, data: Any, in_turn: Collection[str] = ()) -> list[Any]:
        """A result or an exception for each trajectory; requests to the addresses in `in_turn` wait for their turns."""
        turns.TURNS.manage(in_turn)
        tasks = [asyncio.create_task(self.compute_score(data[index : index + 1])) for index in range(len(data))]
        uids = data.non_tensor_batch["uid"].tolist()
        for uid in dict.fromkeys(uids):
            groups.expect([task for task, own in zip(tasks, uids, strict=True) if own == uid])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [_portable(result) if isinstance(result, BaseException) else result for result in results]

    module.RewardLoopManager._init_reward_loop_workers = init
    module.RewardLoopWorker.compute_score = compute_score

    async def waiting(self: Any) -> dict[str, int]:
        return turns.TURNS.waiting()

    async def take_turn(self: Any, address: str) -> None:
        await turns.TURNS.take(address)

    module.RewardLoopWorker.score_each = score_each
    module.RewardLoopWorker.waiting, module.RewardLoopWorker.take_turn = waiting, take_turn


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
        keys, served = finals(batch.keys), self.served_models
        before = (served.loads, served.loading_s) if served is not None else (0, 0.0)
        with _awake(self):
            results = _scored(self, module, batch, keys)
        if metrics is not None and served is not None and served.in_turn:
            metrics["agent/reward_model_loads"] = served.loads - before[0]
            metrics["timing_s/reward_model_loads"] = served.loading_s - before[1]
        return _written(module, batch, dict(zip(keys, results, strict=True)))

    module.PPOTrainer._compute_reward_colocate = compute


def finals(keys: Sequence[str]) -> list[str]:
    """The last of the keys `{uid}_{session}_{index}` of each session, which stands for the whole trajectory."""
    last: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: int(key.rpartition("_")[2])):
        last[key.rpartition("_")[0]] = key
    return list(last.values())


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
    manager, served = trainer.reward_loop_manager, trainer.served_models
    workers, in_turn = manager.reward_loop_workers, list(served.in_turn) if served is not None else []
    if not workers:  # reward.num_workers=0
        from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

        if not hasattr(trainer, "late_worker"):
            trainer.late_worker = RewardLoopWorker(trainer.config, manager.reward_router_address)
        found: list[Any] = asyncio.run(_scored_here(trainer.late_worker, data, served, in_turn))
        return found
    of_uid = {uid: place for place, uid in enumerate(dict.fromkeys(key.split("_")[0] for key in keys))}
    places: list[list[int]] = [[] for _ in workers]
    for index, key in enumerate(keys):
        places[of_uid[key.split("_")[0]] % len(workers)].append(index)
    chosen = [(rows, worker) for rows, worker in zip(places, workers, strict=True) if rows]
    answers = asyncio.run(_scored_there([(data.select_idxs(rows), worker) for rows, worker in chosen], served, in_turn))
    results: list[Any] = [None] * len(keys)
    for (rows, _), answer in zip(chosen, answers, strict=True):
        for row, result in zip(rows, answer, strict=True):
            results[row] = result
    return results


async def _scored_here(worker: Any, data: Any, served: Any, in_turn: Sequence[str]) -> list[Any]:
    """By a worker of this process."""
    scoring = asyncio.create_task(worker.score_each(data, in_turn))
    await _give_turns([scoring], served, worker.waiting, worker.take_turn)
    found: list[Any] = await scoring
    return found


async def _scored_there(parts: Sequence[tuple[Any, Any]], served: Any, in_turn: Sequence[str]) -> list[list[Any]]:
    """By reward workers, each with its part of the trajectories."""
    workers = [worker for _, worker in parts]

    async def waiting() -> dict[str, int]:
        found: Counter[str] = Counter()
        for each in await asyncio.gather(*(worker.waiting.remote() for worker in workers)):
            found.update(each)
        return found

    async def take_turn(address: str) -> None:
        await asyncio.gather(*(worker.take_turn.remote(address) for worker in workers))

    async def of(worker: Any, data: Any) -> list[Any]:
        found: list[Any] = await worker.score_each.remote(data, in_turn)
        return found

    scoring = [asyncio.create_task(of(worker, data)) for data, worker in parts]
    await _give_turns(scoring, served, waiting, take_turn)
    return list(await asyncio.gather(*scoring))


async def _give_turns(
    scoring: Sequence[asyncio.Task[Any]],
    served: Any,
    waiting: Callable[[], Awaitable[Mapping[str, int]]],
    take_turn: Callable[[str], Awaitable[None]],
) -> None:
    """Load models one after another until everything is scored."""
    while served is not None and served.in_turn and not all(task.done() for task in scoring):
        if counts := await waiting():
            address = max(counts, key=lambda each: counts[each])
            async with served.turn_of(address):
                await take_turn(address)
        await asyncio.wait(scoring, timeout=turns.POLL_S)


def _as_handed_over(module: ModuleType, keys: list[str], partition: str) -> Any:
    """The trajectories in the form that an agent-loop worker sends to a reward worker."""
    import numpy as np
    import torch
    from tensordict import TensorDict
    from torch.nn.utils.rnn import pad_sequence
    from verl import DataProto

    data = module.tq.kv_batch_get(
        keys=keys, partition_id=partition, select_fields=["prompts", "responses", "num_turns", *_ROW]
    )
    prompts, responses = list(data["prompts"].unbind()), list(data["responses"].unbind())
    whole = [torch.ones(len(p) + len(r), dtype=torch.int64) for p, r in zip(prompts, responses, strict=True)]
    tensors = {
        "prompts": pad_sequence(prompts, batch_first=True),
        "responses": pad_sequence(responses, batch_first=True),
        "attention_mask": pad_sequence(whole, batch_first=True),
    }
    row = {name: _objects(data[name]) for name in _ROW if name in data.keys()}  # noqa: SIM118 - a TensorDict
    row["tool_extra_fields"] = row.pop("extra_fields")
    row["__num_turns__"] = np.array([int(turns) for turns in data["num_turns"]])
    row["prompt_len"] = np.array([len(prompt) for prompt in prompts])
    row["response_len"] = np.array([len(response) for response in responses])
    return DataProto(batch=TensorDict(tensors, batch_size=len(keys)), non_tensor_batch=row)


def _objects(values: Any) -> Any:
    """One Python object for each row."""
    import numpy as np

    objects = np.empty(len(values), dtype=object)
    objects[:] = [getattr(value, "data", value) for value in values]
    return objects


def _written(module: ModuleType, batch: Any, results: dict[str, Any]) -> Any:
    """Store the scores in TransferQueue, and return the batch without unscored trajectories.

    Raises:
        FatalError: a trajectory could not be scored because the configuration or code is wrong.
        UnscoredError: none could be scored.
    """
    failed = {key: result for key, result in results.items() if isinstance(result, BaseException)}
    for error in failed.values():
        if isinstance(error, FatalError):
            raise error
    if failed:
        validate = batch.partition_id != "train"
        reasons = [f"{type(error).__name__}: {error}" for error in failed.values()]
        tags = [{"error": reason, "fatal": False, "validate": validate} for reason in reasons]
        module.tq.kv_batch_put(keys=[uuid4().hex for _ in tags], partition_id=ERRORS_PARTITION, tags=tags)
        if len(failed) == len(results):
            raise UnscoredError(
                f"no trajectory of the step is usable: {len(failed)} failed, the last with: {reasons[-1]}"
            )
        gone = {key.rpartition("_")[0] for key in failed}
        lost = [key for key in batch.keys if key.rpartition("_")[0] in gone]
        module.tq.kv_clear(keys=lost, partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if key not in set(lost)])
    _write(module, batch, {key.rpartition("_")[0]: result for key, result in results.items()})
    return batch


def _write(module: ModuleType, batch: Any, results: dict[str, Any]) -> None:
    """Give every sequence of a trajectory its score, at the last token, and the manager's reported values."""
    import torch
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    data = module.tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "extra_fields"]
    )
    rows = []
    for key, mask, extra in zip(batch.keys, data["response_mask"].unbind(), data["extra_fields"], strict=True):
        result = results[key.rpartition("_")[0]]
        scores = torch.zeros(len(mask), dtype=torch.float32)
        scores[-1] = result["reward_score"]
        fields = dict(getattr(extra, "data", extra)) | {"reward_extra_info": result["reward_extra_info"]}
        rows.append({"rm_scores": scores, "extra_fields": fields})
    module.tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(rows))


def _portable(error: BaseException) -> BaseException:
    """The error as one that can be pickled."""
    if isinstance(error, FatalError):
        return error
    reason = str(error) if isinstance(error, UnscoredError) else f"{type(error).__name__}: {error}"
    return UnscoredError(reason)
