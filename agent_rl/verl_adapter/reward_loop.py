"""Extends verl's reward loop for the `trajectory` manager with a reward model; other managers are unaffected.

If a reward model shares the trainer's GPUs, a batch is scored after sampling. verl then passes only the prompt and the
response to its reward workers, lets the whole step fail if one trajectory cannot be scored, and does not log the
manager's reports. With agent_rl, the manager gets the same data as during sampling, and a trajectory that cannot be
scored is dropped from the batch and counted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopManager, RewardLoopWorker
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.rewards import groups
from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.trajectory import Trajectory
from agent_rl.verl_adapter import stages
from agent_rl.verl_adapter.algorithms.turns import REWARDS
from agent_rl.verl_adapter.custom_function import MANAGER
from agent_rl.verl_adapter.failures import ERRORS_PARTITION, tag
from agent_rl.verl_adapter.manager import TRAJECTORY
from agent_rl.verl_adapter.recorded import KEY
from agent_rl.verl_adapter.served_models import KIND, ROUTER_MODEL, references, write_addresses
from agent_rl.verl_adapter.trained_samples import finals, session_of


class AgentRewardLoopWorker(RewardLoopWorker):
    """Calls the `trajectory` manager even if there is a reward model; verl would score only with the model."""

    async def compute_score(self, data: Any) -> Any:
        """Return the manager's result for one trajectory.

        verl's worker reads only the score and the report, so the report contains the turns' rewards too.
        """
        if self.config.reward.reward_manager.name == MANAGER:
            result = await self.reward_manager.run_single(data)
            if rewards := result.pop(REWARDS, None):
                result["reward_extra_info"][REWARDS] = rewards
            return result
        return await super().compute_score(data)

    async def score_each(self, data: Any) -> list[Any]:
        """Return a result or an exception for each trajectory of a prompt."""
        group = groups.Group(len(data))

        async def score(index: int) -> Any:
            group.join()
            return await self.compute_score(data[index : index + 1])

        results = await asyncio.gather(*map(score, range(len(data))), return_exceptions=True)
        return [_portable(result) if isinstance(result, BaseException) else result for result in results]


class AgentRewardLoopManager(RewardLoopManager):
    """Lets components find verl's reward model, and scores a sampled batch."""

    def _init_reward_loop_workers(self) -> None:
        model = self.config.reward.reward_model
        if model.enable and model.enable_resource_pool and model.rollout.free_cache_engine:
            # verl puts the model to sleep after starting it, and wakes it only to score after sampling
            self.reward_model_manager.wake_up()
        reward = self.config.reward
        has_function = OmegaConf.select(reward, "custom_reward_function.path") is not None
        if reward.reward_manager.name == MANAGER and self.reward_router_address and not has_function:
            _add_component(self.config, self.reward_router_address)
        self.reward_loop_workers_class = ray.remote(AgentRewardLoopWorker)
        self._own_worker: AgentRewardLoopWorker | None = None
        super()._init_reward_loop_workers()
        if OmegaConf.select(self.config, KEY) is None:
            stages.announce(stages.ENGINE)  # next, verl's trainer starts the engine, the longest stage

    @property
    def reward_loop_worker_handles(self) -> Any:
        """Return no workers during sampling if a served model shares the GPUs; verl checks only its own model."""
        models = (OmegaConf.select(self.config, f"{SECTION}.reward.models") or {}).values()
        if any(model.get("placement", "own") != "own" for model in models):
            return None
        return super().reward_loop_worker_handles

    def score_each(self, data: Any) -> list[Any]:
        """Return a result or an exception per trajectory, in order; one worker gets all samples of a prompt.

        If there are no reward workers (`reward.num_workers=0`), this process scores the samples.
        """
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, uid in enumerate(data.non_tensor_batch["uid"].tolist()):
            rows_of[uid].append(row)
        workers = self.reward_loop_workers
        if not workers:
            self._own_worker = self._own_worker or AgentRewardLoopWorker(self.config, self.reward_router_address)
            workers = [SimpleNamespace(score_each=SimpleNamespace(remote=self._own_worker.score_each))]

        async def score() -> list[list[Any]]:
            parts = zip(itertools.cycle(workers), map(data.select_idxs, rows_of.values()), strict=False)
            return list(await asyncio.gather(*(worker.score_each.remote(part) for worker, part in parts)))

        results: dict[int, Any] = {}
        for rows, answer in zip(rows_of.values(), asyncio.run(score()), strict=True):
            results |= dict(zip(rows, answer, strict=True))
        return [results[row] for row in sorted(results)]


def _add_component(config: Any, address: str) -> None:
    """Let components find verl's reward model, and add a component if no component uses the model."""
    model = config.reward.reward_model
    with open_dict(config):
        section = OmegaConf.to_container(config.get(SECTION) or OmegaConf.create(), resolve=True)
        assert isinstance(section, dict)
        components = section.setdefault("reward", {}).setdefault("components", {})
        if all(name != ROUTER_MODEL for _, name, *_ in references(section)):
            components[ROUTER_MODEL] = {"kind": KIND, "config": {"models": {ROUTER_MODEL: {}}}}
        config[SECTION] = section
    settings = ServedModelSettings(path=model.model_path, engine=model.rollout.name)
    write_addresses(config, {ROUTER_MODEL: (f"http://{address}", settings)})


def _portable(error: BaseException) -> BaseException:
    """Return the error in a form that can be pickled."""
    if isinstance(error, FatalError):
        return error
    reason = str(error) if isinstance(error, UnscoredError) else f"{type(error).__name__}: {error}"
    return UnscoredError(reason)


def score_sampled(trainer: Any, batch: Any) -> Any:
    """Score a batch, store the scores in TransferQueue, and return the batch without unscored trajectories.

    Raises:
        FatalError: a trajectory could not be scored because the configuration or code is wrong.
        UnscoredError: no trajectory of a training batch could be scored.
    """
    keys = finals(batch.keys)
    if not keys:  # in a validation
        return batch
    with _awake(trainer):
        scores = trainer.reward_loop_manager.score_each(_in_worker_form(keys, batch.partition_id))
    results = dict(zip(map(session_of, keys), scores, strict=True))
    validate = batch.partition_id != "train"
    failed = {name: tag(each, validate) for name, each in results.items() if isinstance(each, BaseException)}
    if failed:
        tq.kv_batch_put(keys=list(failed), partition_id=ERRORS_PARTITION, tags=list(failed.values()))
        trainer.failures.see(failed)
        if len(failed) == len(results) and not validate:
            raise trainer.failures.nothing_usable("none could be scored")
        lost = [key for key in batch.keys if session_of(key) in failed]
        tq.kv_clear(keys=lost, partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if session_of(key) not in failed])
    if batch.keys:
        _write(batch, results)
    return batch


@contextmanager
def _awake(trainer: Any) -> Iterator[None]:
    """Within this block, keep the models that share the trainer's GPUs loaded; verl's model has a separate manager."""
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


def _in_worker_form(keys: list[str], partition: str) -> DataProto:
    """Return the trajectories as an agent-loop worker sends them, with the fields that agent_rl's manager reads."""
    fields = ["responses", "num_turns", "uid", "extra_fields"]
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=fields)
    responses, extra_fields = list(data["responses"].unbind()), _objects(data["extra_fields"])
    for extra in extra_fields:  # verl has stored each trajectory as a dict
        extra[TRAJECTORY] = Trajectory.from_dict(extra[TRAJECTORY])
    columns = {
        "uid": _objects(data["uid"]),
        "tool_extra_fields": extra_fields,
        "__num_turns__": np.array([int(turns) for turns in data["num_turns"]]),
        "response_len": np.array([len(response) for response in responses]),
    }
    tensors = {"responses": pad_sequence(responses, batch_first=True)}
    return DataProto(batch=TensorDict(tensors, batch_size=len(keys)), non_tensor_batch=columns)


def _objects(values: Any) -> Any:
    """Return an array with one Python object per row."""
    return np.fromiter((getattr(value, "data", value) for value in values), dtype=object, count=len(values))


def _write(batch: Any, results: Mapping[str, Any]) -> None:
    """Store each trajectory's score on the last trained token of its sequences, and store the manager's report."""
    fields = ["response_mask", "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    rows = []
    for key, mask, extra in zip(batch.keys, data["response_mask"].unbind(), data["extra_fields"], strict=True):
        result = results[session_of(key)]
        scores = torch.zeros(len(mask), dtype=torch.float32)
        scores[mask.nonzero()[-1] if mask.any() else -1] = result["reward_score"]
        info = dict(result["reward_extra_info"])
        reported = {**dict(getattr(extra, "data", extra)), "reward_extra_info": info, REWARDS: info.pop(REWARDS, None)}
        reported.pop(TRAJECTORY, None)  # the trainer fetches these values at each step, but reads no trajectory
        rows.append({"rm_scores": scores, "extra_fields": reported})
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(rows))
