"""Checks for conflicting settings of agent_rl and verl; the trainer and the doctor run them before Ray starts.

verl calls most reward managers only if the user has set a reward function. With a reward model on the trainer's GPUs,
verl scores after sampling, from the prompt and the response only. verl reports neither case. The `trajectory` manager
always gets the whole trajectory (`reward_loop`), but a score computed after sampling is too late for some algorithms.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from hydra.core.hydra_config import HydraConfig

from agent_rl.cpu import switch as cpu
from agent_rl.errors import ConfigError, FatalError, did_you_mean
from agent_rl.preflight import rows, values  # noqa: F401 - the checks in `rows` register themselves
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Needs, check, reason, refuse
from agent_rl.preflight.own_code import function_problems
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.tools import ToolSpec
from agent_rl.verl_adapter import checkpoints, custom_function, ordering, stragglers  # also for their checks
from agent_rl.verl_adapter.algorithms import inputs, maxrl, remax, turns
from agent_rl.verl_adapter.custom_function import MANAGER
from agent_rl.verl_adapter.inspection import load_specs
from agent_rl.verl_adapter.served_models import ROUTER_MODEL, references

BOTH = ("trainer", "doctor")
MODELS, VERLS = "agent_rl.reward.models", "reward.reward_model"
NODES = ("n_gpus_per_node", "nnodes")
TRIED_ROWS = 64
"""Number of rows per file that are searched for an example of each agent."""

Errors = Iterator[ConfigError]


def early_checks(module: ModuleType) -> None:
    """`verl.utils.config`: run the trainer's checks when verl checks its configuration, before Ray starts.

    Without the early checks, the `agent_rl` section and the tool file would be read a minute later, in the workers.
    """
    original = module.validate_config

    @functools.wraps(original)
    def validate(config: Any, use_reference_policy: bool, use_critic: bool) -> None:
        if note := checkpoints.step_back(config):
            print(f"agent_rl: {note}", flush=True)
        with as_one_line(), _without_ray():
            refuse("trainer", _TrainersCase(config=config, most_rows=TRIED_ROWS))
            original(config, use_reference_policy, use_critic)

    module.validate_config = validate  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _TrainersCase(RunCase):
    @cached_property
    def tools(self) -> list[ToolSpec]:
        """The tools of the tool file, including verl's own tools."""
        return load_specs(str(self.tool_path)) if self.tool_path else []


@contextmanager
def as_one_line() -> Iterator[None]:
    """In a trainer's command, print agent_rl's errors instead of hydra's traceback, and exit with status 2."""
    try:
        yield
    except FatalError as error:
        if not HydraConfig.initialized() or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def _without_ray() -> Iterator[None]:
    """Shut down any Ray instance that the checks start implicitly, because it would lack the run's environment."""
    import ray

    was_started = ray.is_initialized()
    try:
        yield
    finally:
        if ray.is_initialized() and not was_started:
            ray.shutdown()


@check("configuration", needs=Needs.VERL, at=BOTH)
def registered_estimator(case: RunCase) -> Errors:
    """The estimator is registered by verl or by the user's modules."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    if (name := case.get(values.ESTIMATOR)) not in ADV_ESTIMATOR_REGISTRY:
        remedy = did_you_mean(str(name), ADV_ESTIMATOR_REGISTRY)
        yield ConfigError(values.ESTIMATOR, f"there is no estimator {name!r}", remedy)


@check("configuration", at=BOTH)
def on_a_cpu(case: RunCase) -> None:
    """A run on a CPU uses nothing that needs a GPU."""
    if cpu.is_selected():
        cpu.check(case.config)


@check("configuration", at=BOTH)
def remax_baselines(case: RunCase) -> Errors:
    """ReMax gets its baselines; verl's v1 trainer computes none for verl's own ReMax estimator."""
    estimator, manager = case.get(values.ESTIMATOR), "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    if estimator == "remax":
        problem = "verl's v1 trainer computes no baselines for its own 'remax' estimator"
        yield ConfigError(values.ESTIMATOR, problem, "Use algo=remax, which selects agent_rl's estimator")
    elif estimator == remax.ESTIMATOR and case.get(manager) != remax.MANAGER:
        yield ConfigError(values.ESTIMATOR, f"{estimator!r} needs ReMax's agent loop manager", "Use algo=remax")
    elif estimator == remax.ESTIMATOR and _has_late_model(case):
        problem = "ReMax needs the reward at the end of each episode, but a colocated reward model scores later"
        yield ConfigError(f"{VERLS}.enable_resource_pool", problem, "Set the key to true")


@check("configuration", at=BOTH)
def turn_baselines(case: RunCase) -> Errors:
    """agent_rl's own group estimators have several samples per prompt to compare."""
    n = "actor_rollout_ref.rollout.n"
    if case.get(values.ESTIMATOR) in (*turns.BY_TURN, maxrl.ESTIMATOR) and case.number(n, 1) < 2:
        problem = f"{case.get(values.ESTIMATOR)!r} compares a prompt's samples, but {n} is 1"
        yield ConfigError(n, problem, f"Set {n}=2 or more, or choose algo=remax or algo=ppo")


@check("configuration", at=BOTH)
def gdpo_weights(case: RunCase) -> None:
    """GDPO has one weight for each component, whatever the data source."""
    if case.get(values.ESTIMATOR) == inputs.GDPO:
        inputs.component_weights(case.config.algorithm, case.settings.reward, 1)


@check("configuration", at=BOTH)
def early_end(case: RunCase) -> Errors:
    """Only a mode that waits for all trajectories of a step ends the slowest trajectories early."""
    share, limit = case.get(stragglers.SHARE, 0), case.get(stragglers.SECONDS)
    if not 0 <= share < 1:
        yield ConfigError(
            stragglers.SHARE, f"{share} is not a share of a step's trajectories", "Set it to 0.02, or to 0"
        )
    refill = "trainer.v1.sampler.sync_refill_failed_groups"
    for key in [key for key, value in ((stragglers.SHARE, share), (stragglers.SECONDS, limit)) if value]:
        if (mode := case.get("trainer.v1.trainer_mode", "sync")) != "sync":
            yield ConfigError(key, f"mode={mode} does not wait for slow trajectories", "Remove it, or set mode=sync")
        elif case.get(refill):
            problem = f"{refill}=true replaces a prompt whose trajectories were all ended early"
            yield ConfigError(key, problem, f"Remove the key, or set {refill}=false")


@check("configuration", needs=Needs.VERL, at=BOTH)
def trainer_class(case: RunCase) -> None:
    """The user's trainer can be loaded, and fits the mode."""
    if case.settings.trainer_class:
        from verl.trainer.ppo.v1 import get_trainer_cls

        from agent_rl.verl_adapter.trainer import with_users_class

        with_users_class(get_trainer_cls(case.config.trainer.v1.trainer_mode), case.config)


@check("data", needs=Needs.VERL, at=BOTH)
def row_order(case: RunCase) -> None:
    """The `agent_rl.data` section fits the rows."""
    ordering.check(case.config, case.settings)


@check("reward", "reward function", Needs.VERL, at=BOTH)
def reward_function(case: RunCase) -> list[FatalError]:
    """The custom reward function can be imported, the reward manager can call it, and it can score an answer."""
    function = custom_function.check(case.config)
    if function is None or not case.has_rows_of_ours or not case.rows:
        return []
    return function_problems(case.settings, case.rows[0], case.default_agent, function)


@check("reward", "reward manager", Needs.VERL, at=BOTH)
def reward_manager(case: RunCase) -> ConfigError | None:
    """The reward manager is registered, or is a user's class that scores one trajectory at a time, as verl requires."""
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    key, name = "reward.reward_manager.name", str(case.get("reward.reward_manager.name"))
    try:
        manager_class = resolve_reward_manager_cls(case.config)
    except Exception as error:  # noqa: BLE001 - verl and the user's file may raise any exception
        remedy = f"{did_you_mean(name, REWARD_MANAGER)} Or set reward.reward_manager.module.path to the class's file"
        return ConfigError(key, f"{name!r} cannot be loaded: {reason(error)}", remedy)
    if isinstance(manager_class, type) and issubclass(manager_class, RewardManagerBase):
        return None
    problem = f"{name!r} is not a subclass of verl.experimental.reward_loop.reward_manager.RewardManagerBase"
    remedy = "Derive it from that class, and score one trajectory in `async def run_single(self, data)`"
    return ConfigError(key, problem, remedy)


@check("reward", at=BOTH)
def served_reward_models(case: RunCase) -> Errors:
    """Every configured reward model is used, and every model that a component refers to is served."""
    models, manager = case.settings.reward.models, case.get("reward.reward_manager.name")
    enabled, has_pool = bool(case.get(f"{VERLS}.enable")), bool(case.get(f"{VERLS}.enable_resource_pool"))
    custom = bool(case.get(f"{CUSTOM_FUNCTION}.path"))
    if enabled and not case.get(f"{VERLS}.model_path"):
        remedy = "Set it to the model's folder or repository"
        yield ConfigError(f"{VERLS}.model_path", "no reward model is set", remedy)
    if manager == "naive" and enabled and custom and not has_pool:
        problem = "a model that shares the trainer's GPUs scores after sampling, when verl passes no ground truth"
        remedy = f"Set the key to true, or set reward.reward_manager.name={MANAGER}"
        yield ConfigError(f"{VERLS}.enable_resource_pool", problem, remedy)
    if models and manager != MANAGER:
        problem = f"the {manager!r} reward manager cannot use these models"
        yield ConfigError(MODELS, problem, f"Set reward.reward_manager.name={MANAGER}")
    is_verls = enabled and manager == MANAGER and not custom
    if is_verls and ROUTER_MODEL in models:
        yield ConfigError(f"{MODELS}.{ROUTER_MODEL}", "verl's own reward model has this name", "Choose another name")
    names = {*models, *([ROUTER_MODEL] if is_verls else [])}
    for key, name, *_ in references(case.get("agent_rl", {})):
        if name not in names:
            remedy = f"Set the model's url, or serve the model by {MODELS}.{name}.path. {did_you_mean(name, names)}"
            yield ConfigError(key, f"this run serves no model {name!r}", remedy)
    for name, model in models.items():
        nodes = [case.number(f"trainer.{key}", 1) if model.visits else getattr(model, key) for key in NODES]
        gpus, ranks = nodes[0] * nodes[1], model.tensor_parallel_size
        if gpus % ranks:
            problem = f"{ranks} does not divide the model's {gpus} GPUs evenly"
            yield ConfigError(f"{MODELS}.{name}.tensor_parallel_size", problem, "Change one of the two numbers")


@check("reward", at=BOTH)
def late_scores(case: RunCase) -> Errors:
    """If a reward model on the trainer's GPUs scores after sampling, no setting needs the reward earlier."""
    if not _scores_late(case):
        return
    why = f"{MODELS}.*.placement=shared" if case.settings.reward.models else f"{VERLS}.enable_resource_pool=false"
    for key, wrong, remedy in (
        (values.ESTIMATOR, remax.ESTIMATOR, "Choose another algorithm"),
        ("algorithm.filter_groups.enable", True, "Set the key to false"),
        ("trainer.v1.trainer_mode", "separate_async", "Set the key to sync"),
    ):
        if case.get(key) == wrong:
            problem = f"this setting needs the reward during sampling, but with {why} the reward is computed later"
            yield ConfigError(key, problem, f"{remedy}, or give the model its own GPUs")


@check("reward", at=BOTH)
def reward_workers(case: RunCase) -> Errors:
    """There are no reward workers if samples are compared, and at least one if only workers can call the model.

    verl passes the address of its reward model only to reward workers; components of the `trajectory` manager read the
    address from the configuration. verl distributes a prompt's samples among the reward workers.
    """
    needs_groups = case.reward.needs_groups and not _scores_late(case)
    key, count = "reward.num_workers", case.number("reward.num_workers", 0)
    if needs_groups and count > 0:
        problem = f"{count} reward workers never see all samples of a prompt, which agent_rl.reward compares"
        yield ConfigError(key, problem, "Set the key to 0; each agent-loop worker then scores the prompts it samples")
    by_component = case.scored_by_ours and not case.get(f"{CUSTOM_FUNCTION}.path")
    if count < 1 and case.get(f"{VERLS}.enable") and not by_component:
        problem = f"{count} reward workers cannot call the reward model"
        yield ConfigError(key, problem, f"Set the key to 1 or more, or set {VERLS}.enable=false")


def _scores_late(case: RunCase) -> bool:
    """Whether the `trajectory` manager scores after sampling, because a reward model shares the trainer's GPUs."""
    shared = any(model.visits for model in case.settings.reward.models.values())
    return case.scored_by_ours and (shared or _has_late_model(case))


def _has_late_model(case: RunCase) -> bool:
    return bool(case.get(f"{VERLS}.enable") and not case.get(f"{VERLS}.enable_resource_pool"))
