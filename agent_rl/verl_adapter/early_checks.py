"""Checks of the configuration before Ray starts: refuses settings of agent_rl and verl that do not fit together.

verl calls most reward managers only if the user has a reward function, and it scores with a model on the trainer's GPUs
after sampling, from prompt and response only; it reports neither. The manager `trajectory` is always called, with the
whole trajectory (`reward_loop`), but a score that comes after sampling is too late for some algorithms.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.trial import own_code_problems
from agent_rl.agents.users.user import load_user
from agent_rl.cpu import switch as cpu
from agent_rl.data.files import read_rows
from agent_rl.errors import ConfigError, FatalError, did_you_mean
from agent_rl.rewards.compose import Reward
from agent_rl.rewards.user_function import UserFunction
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.reward import ServedModelSettings
from agent_rl.verl_adapter import checkpoints, custom_function, ordering, resume, values
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.served_models import MANAGER, ROUTER_MODEL, named, require_known
from agent_rl.verl_adapter.tool_files import load_specs

__all__ = [
    "check_manager",
    "check_own_code",
    "check_reward_models",
    "check_reward_workers",
    "early_checks",
    "scores_late",
]

MODELS = "agent_rl.reward.models"
TRIED_ROWS = 64
"""Rows of each file among which one for each agent is found."""


def early_checks(module: ModuleType) -> None:
    """`verl.utils.config`: check our section and the tool file where verl checks its configuration, before Ray starts.

    Otherwise only workers would read them, a minute later and on every node.
    """
    original = module.validate_config

    @functools.wraps(original)
    def validate(config: Any, use_reference_policy: bool, use_critic: bool) -> None:
        with _as_one_line():
            check(config, use_reference_policy, use_critic)

    def check(config: Any, use_reference_policy: bool, use_critic: bool) -> None:
        settings = AgentRLSettings.from_config(config)
        values.check_values(config)
        _check_estimator_is_known(config)
        if cpu.is_selected():
            cpu.check(config)
        reward = Reward(
            settings.reward,
            max_response_tokens=config.data.max_response_length,
            judged=bool(config.reward.custom_reward_function.path),
        )
        remax.check(config)
        load_user(settings.user_sim.user, settings.user_sim.config)
        check_own_code(config, settings, reward, custom_function.check(config))
        ordering.check(config, settings)
        check_manager(config.reward.reward_manager)
        check_reward_models(config, settings)
        late = scores_late(config, settings)
        check_reward_workers(config.reward, needs_groups=reward.needs_groups and not late)
        original(config, use_reference_policy, use_critic)
        checkpoints.require_model(config.actor_rollout_ref.model.path, "actor_rollout_ref.model.path")
        resume.check(config, use_critic)
        if SECTION in config and config[SECTION].get("trainer_class"):
            from agent_rl.verl_adapter.trainer import require_trainer_class

            require_trainer_class(config)

    module.validate_config = validate  # type: ignore[attr-defined]


@contextmanager
def _as_one_line() -> Iterator[None]:
    """In a trainer's command, print our errors in place of hydra's traceback, and exit with status 2."""
    try:
        yield
    except FatalError as error:
        if not HydraConfig.initialized() or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def check_own_code(config: Any, settings: AgentRLSettings, reward: Reward, function: UserFunction | None) -> None:
    """Read the tool file and the data files, and try the user's own code once on their first rows.

    Raises:
        FatalError: for the first thing that is wrong; it names the key, or file and line of the code.
    """
    import ray

    path = config.actor_rollout_ref.rollout.multi_turn.tool_config_path
    setup = EpisodeSetup(settings, tools=load_specs(_resolved(path)) if path else [])
    agent = config.actor_rollout_ref.rollout.agent.default_agent_loop
    was_started = ray.is_initialized()
    problems = own_code_problems(setup, _first_rows(config), agent, reward, function)
    if ray.is_initialized() and not was_started:  # by code that asks it for something, without the run's environment
        ray.shutdown()
    if problems:
        raise problems[0]


def _first_rows(config: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for key in ("train_files", "val_files"):
        named = config.data.get(key) or []
        for each in [named] if isinstance(named, str) else named:
            file_path = os.path.expanduser(str(each))
            if (
                "://" in file_path
                or config.data.custom_cls.name not in (None, "RowDataSet")
                or not os.path.exists(file_path)
            ):
                continue
            file = read_rows(file_path, TRIED_ROWS)
            if file.error is not None:
                raise ConfigError(f"data.{key}", f"{file.error.key}: {file.error.problem}", file.error.remedy)
            rows += file.rows
    return rows


def check_manager(manager: Any) -> None:
    """Refuse a reward manager of the user that verl could not use: `reward.reward_manager.source=importlib`.

    Args:
        manager: the section `reward.reward_manager`.

    Raises:
        ConfigError: when there is no such class, or it is not one of verl 0.9, which score one trajectory at a time.
    """
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    if manager.source != "importlib":
        return
    place = Place("reward.reward_manager")
    if not manager.module.path:
        raise (place / "module" / "path").error("source=importlib needs it", "Name the file of the manager's class")
    path = str(manager.module.path).removeprefix("file://")
    package = path.removeprefix("pkg://").replace("/", ".") if path.startswith("pkg://") else None
    found = find_object(f"{package}.{manager.name}" if package else f"{path}:{manager.name}", place / "name")
    if not (isinstance(found, type) and issubclass(found, RewardManagerBase)):
        problem = (
            f"{manager.name!r} is not a subclass of verl.experimental.reward_loop.reward_manager.RewardManagerBase"
        )
        remedy = "Derive it from that; `async def run_single(self, data)` scores one trajectory, and no batch is passed"
        raise (place / "name").error(problem, remedy)


def check_reward_models(config: Any, settings: AgentRLSettings) -> None:
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
        problem = f"the reward manager {manager!r} uses none of them"
        raise ConfigError(MODELS, problem, f"Set reward.reward_manager.name={MANAGER}")
    found = verls.enable and manager == MANAGER and not custom
    if found and ROUTER_MODEL in models:
        raise ConfigError(f"{MODELS}.{ROUTER_MODEL}", "verl's own reward model has this name", "Choose another")
    require_known(_plain(config), {*models, *([ROUTER_MODEL] if found else [])})
    for key, name in named(_plain(config)):
        if name in models and models[name].kind == "embedding" and f".config.models.{name}" in key:
            remedy = f"Use it in a component of kind embedding: url: http://served/{name}"
            raise ConfigError(key, f"{MODELS}.{name}.kind=embedding gives no score", remedy)
    for name, model in models.items():
        _check_ranks(name, model, config.trainer)
    if scores_late(config, settings):
        visits = f"{MODELS}.*.placement=shared"
        _check_late(config, visits if models else "reward.reward_model.enable_resource_pool=false")


def scores_late(config: Any, settings: AgentRLSettings) -> bool:
    """Whether the manager `trajectory` scores after sampling, because a reward model shares the trainer's GPUs."""
    verls = config.reward.reward_model
    shared = any(model.visits for model in settings.reward.models.values())
    own_way = verls.enable and not verls.enable_resource_pool
    return config.reward.reward_manager.name == MANAGER and (shared or own_way)


def check_reward_workers(reward: Any, *, needs_groups: bool) -> None:
    """Refuse a number of reward workers that the reward cannot work with.

    Args:
        reward: the section `reward` of verl's configuration.
        needs_groups: whether a component of our reward compares the samples of a prompt.

    Raises:
        ConfigError: for no reward workers with a reward model, because only they get its address (except a component of
            the manager `trajectory`, which finds it in the configuration); and for reward workers with a component that
            compares the samples of a prompt, because verl spreads these among the workers.
    """
    if needs_groups and reward.num_workers > 0:
        raise ConfigError(
            "reward.num_workers",
            f"{reward.num_workers} reward workers never see all samples of a prompt, which agent_rl.reward compares",
            "Set it to 0: then each agent-loop worker scores the prompts that it samples",
        )
    custom = reward.custom_reward_function.path is not None
    by_component = reward.reward_manager.name == "trajectory" and not custom
    if reward.num_workers < 1 and reward.reward_model.enable and not by_component:
        raise ConfigError(
            "reward.num_workers",
            f"{reward.num_workers} leaves no worker to call the reward model",
            "Set it to 1 or more, or reward.reward_model.enable=false",
        )


def _check_estimator_is_known(config: Any) -> None:
    """Refuse an estimator that is registered neither by verl nor by the user's modules."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    if (name := config.algorithm.adv_estimator) not in ADV_ESTIMATOR_REGISTRY:
        remedy = did_you_mean(str(name), ADV_ESTIMATOR_REGISTRY)
        raise ConfigError(values.ESTIMATOR, f"there is no estimator {name!r}", remedy)


def _check_ranks(name: str, model: ServedModelSettings, trainer: Any) -> None:
    """Refuse a tensor parallel size that does not divide the model's GPUs."""
    nodes = trainer if model.visits else model
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


def _resolved(path: str) -> str:
    """The path as verl's workers will find it; an unknown one unchanged, for our loader's message."""
    from verl.utils.import_utils import resolve_config_path

    try:
        return str(resolve_config_path(path))
    except FileNotFoundError:
        return path
