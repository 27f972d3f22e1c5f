"""Whether the reward models will be used as the configuration says: asked before Ray starts.

verl asks most reward managers only where the user has a reward function, and a model that shares the trainer's GPUs is
asked after sampling, with nothing but prompt and response. It says neither. The manager `trajectory` is asked always,
and with all that it needs (`late_scoring`); what remains is that a score which comes after sampling comes too late for
some algorithms.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.serving import ServedModelSettings
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.late_scoring import MANAGER, ROUTER_MODEL
from agent_rl.verl_adapter.served_addresses import require_known

__all__ = ["check", "scores_late"]

MODELS = "agent_rl.reward.models"


def check(config: Any, settings: AgentRLSettings) -> None:
    """Refuse reward models that would not be used as the configuration says.

    Args:
        config: the trainer's whole configuration.
        settings: its section `agent_rl`.

    Raises:
        ConfigError: naming the key.
    """
    reward, models = config.reward, settings.reward.models
    verls, manager = reward.reward_model, reward.reward_manager.name
    custom = reward.custom_reward_function.path is not None
    if verls.enable and not verls.model_path:
        raise ConfigError(
            "reward.reward_model.model_path", "no reward model is named", "Name its folder or its repository"
        )
    if manager == "naive" and verls.enable and custom and not verls.enable_resource_pool:
        raise ConfigError(
            "reward.reward_model.enable_resource_pool",
            "a model that shares the trainer's GPUs scores after sampling, where verl has no ground truth to hand on",
            "Set it to true, or reward.reward_manager.name=trajectory",
        )
    if models and manager != MANAGER:
        problem = f"the reward manager {manager!r} asks none of them"
        raise ConfigError(MODELS, problem, f"Set reward.reward_manager.name={MANAGER}")
    found = verls.enable and manager == MANAGER and not custom
    if found and ROUTER_MODEL in models:
        raise ConfigError(f"{MODELS}.{ROUTER_MODEL}", "verl's own reward model has this name", "Choose another")
    require_known(_plain(config), {*models, *([ROUTER_MODEL] if found else [])})
    for name, model in models.items():
        _check_ranks(name, model, config.trainer)
    if scores_late(config, settings):
        shared = f"{MODELS}.*.placement=shared"
        _check_late(config, shared if models else "reward.reward_model.enable_resource_pool=false")


def scores_late(config: Any, settings: AgentRLSettings) -> bool:
    """Whether the manager `trajectory` scores after sampling, because a reward model shares the trainer's GPUs."""
    verls = config.reward.reward_model
    shared = any(model.placement == "shared" for model in settings.reward.models.values())
    own_way = verls.enable and not verls.enable_resource_pool
    return config.reward.reward_manager.name == MANAGER and (shared or own_way)


def _check_ranks(name: str, model: ServedModelSettings, trainer: Any) -> None:
    """A model's GPUs divide into replicas."""
    nodes = trainer if model.placement == "shared" else model
    gpus, ranks = nodes.n_gpus_per_node * nodes.nnodes, model.tensor_parallel_size
    if gpus % ranks:
        problem = f"{ranks} does not divide {gpus} GPUs into replicas"
        raise ConfigError(f"{MODELS}.{name}.tensor_parallel_size", problem, "Change one of them")


def _check_late(config: Any, why: str) -> None:
    """Refuse what needs the reward at the end of each episode."""
    for wrong, key, remedy in (
        (config.algorithm.adv_estimator == remax.ESTIMATOR, "algorithm.adv_estimator", "Choose another algorithm"),
        (config.algorithm.filter_groups.enable, "algorithm.filter_groups.enable", "Set it to false"),
        (config.trainer.v1.trainer_mode == "separate_async", "trainer.v1.trainer_mode", "Set it to sync"),
    ):
        if wrong:
            problem = f"it needs the reward while trajectories are sampled, and with {why} it comes later"
            raise ConfigError(key, problem, f"{remedy}, or give the model GPUs of its own")


def _plain(config: Any) -> Any:
    section = OmegaConf.select(config, SECTION)
    return {} if section is None else OmegaConf.to_container(section, resolve=True)
