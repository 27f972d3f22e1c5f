"""verl's reward loop with what the manager `trajectory` needs beside a reward model; other managers are not changed."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import ray
from omegaconf import OmegaConf, open_dict
from verl.experimental.reward_loop.reward_loop import RewardLoopManager, RewardLoopWorker

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.rewards import groups
from agent_rl.settings import SECTION
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.verl_adapter import stages
from agent_rl.verl_adapter.custom_function import MANAGER
from agent_rl.verl_adapter.served_models import KIND, ROUTER_MODEL, Served, references, write_addresses

__all__ = ["AgentRewardLoopManager", "AgentRewardLoopWorker"]


class AgentRewardLoopWorker(RewardLoopWorker):
    """Calls the manager `trajectory` also if there is a reward model; verl would score only with the model."""

    async def compute_score(self, data: Any) -> Any:
        """What the manager says of one trajectory."""
        if self.config.reward.reward_manager.name == MANAGER:
            return await self.reward_manager.run_single(data)
        return await super().compute_score(data)

    async def score_each(self, data: Any) -> list[Any]:
        """A result or an exception for each trajectory of a prompt."""
        group = groups.Group(len(data))

        async def score(index: int) -> Any:
            group.join()
            return await self.compute_score(data[index : index + 1])

        results = await asyncio.gather(*map(score, range(len(data))), return_exceptions=True)
        return [_portable(result) if isinstance(result, BaseException) else result for result in results]


class AgentRewardLoopManager(RewardLoopManager):
    """Lets components find verl's own reward model, and scores a sampled batch."""

    def _init_reward_loop_workers(self) -> None:
        model = self.config.reward.reward_model
        if model.enable and model.enable_resource_pool and model.rollout.free_cache_engine:
            # verl puts it to sleep at its start, and wakes it only to score after sampling
            self.reward_model_manager.wake_up()
        reward = self.config.reward
        has_function = OmegaConf.select(reward, "custom_reward_function.path") is not None
        if reward.reward_manager.name == MANAGER and self.reward_router_address and not has_function:
            _add_component(self.config, self.reward_router_address)
        self.reward_loop_workers_class = ray.remote(AgentRewardLoopWorker)
        self._own_worker: AgentRewardLoopWorker | None = None
        super()._init_reward_loop_workers()
        stages.announce(stages.ENGINE)  # which verl's trainer starts next, and which takes longest

    @property
    def reward_loop_worker_handles(self) -> Any:
        """No reward workers for sampling, when a served model shares the GPUs; verl looks at its own model only."""
        models = (OmegaConf.select(self.config, f"{SECTION}.reward.models") or {}).values()
        if any(model.get("placement", "own") != "own" for model in models):
            return None
        return super().reward_loop_worker_handles

    def score_each(self, data: Any) -> list[Any]:
        """A result or an exception for each trajectory, in order; the samples of a prompt go to one worker.

        Without reward workers (`reward.num_workers=0`), this process scores them.
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
    """Let components find verl's reward model, and add a component if none uses it."""
    model = config.reward.reward_model
    with open_dict(config):
        section = OmegaConf.to_container(config.get(SECTION) or OmegaConf.create(), resolve=True)
        assert isinstance(section, dict)
        components = section.setdefault("reward", {}).setdefault("components", {})
        if all(name != ROUTER_MODEL for _, name, *_ in references(section)):
            components[ROUTER_MODEL] = {"kind": KIND, "config": {"models": {ROUTER_MODEL: {}}}}
        config[SECTION] = section
    settings = ServedModelSettings(path=model.model_path, engine=model.rollout.name)
    write_addresses(config, {ROUTER_MODEL: Served(f"http://{address}", settings)})


def _portable(error: BaseException) -> BaseException:
    """The error as one that can be pickled."""
    if isinstance(error, FatalError):
        return error
    reason = str(error) if isinstance(error, UnscoredError) else f"{type(error).__name__}: {error}"
    return UnscoredError(reason)
