"""The methods that can be certified: composed `algo=` configurations, verl's estimators, and a user's function."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.utils.config import omega_conf_to_dataclass

import agent_rl.config
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.verl_adapter import trained_samples
from agent_rl.verl_adapter.certificates.gradients import Method
from agent_rl.verl_adapter.certificates.processes import COMPONENTS

WORD = "algo="
WITHOUT_STD = " without std"
"""The suffix of an estimator's name that sets `norm_adv_by_std_in_grpo` to false."""
NORMALIZED = ("grpo", "grpo_passk", "grpo_vectorized")
"""Estimators that are certified both with and without division by the standard deviation."""
COUPLED = ("gae", "gdpo", "gpg", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""Estimators whose advantages depend on the whole batch; a user's estimator is treated as one of them."""
BUILT_IN = frozenset(ADV_ESTIMATOR_REGISTRY)
"""The estimators of verl and agent_rl, without the user's estimators."""
OPTION = "--estimator"


def words() -> list[str]:
    """Return all values of `algo=`, each with the prefix `algo=`."""
    return [f"{WORD}{file.stem}" for file in sorted((Path(agent_rl.config.__path__[0]) / "algo").glob("*.yaml"))]


def estimators() -> list[str]:
    """Return the names of the estimators that are registered with verl, including agent_rl's."""
    names = sorted(BUILT_IN)
    return [form for name in names for form in (name, *([name + WITHOUT_STD] if name in NORMALIZED else []))]


def find(names: list[str]) -> list[str]:
    """Return the named methods; `rloo` means both `algo=rloo` and the estimator, and an empty list means all methods.

    Raises:
        ConfigError: one of the methods does not exist.
    """
    known = [*words(), *estimators()]
    methods: list[str] = []
    for name in names:
        forms = {name, WORD + name, name + WITHOUT_STD} & {*known}
        if not forms:
            raise ConfigError("NAME", f"there is no {name!r}", did_you_mean(name, known))
        methods += [each for each in known if each in forms and each not in methods]
    return methods or known


@cache
def method(name: str) -> Method:
    """Return the method for an `algo=` configuration, or for an estimator with a loss that sums over tokens."""
    if name.startswith(WORD):
        config = _compose(name)
        return _method(config.algorithm.adv_estimator, config)
    by_std = f"algorithm.norm_adv_by_std_in_grpo={not name.endswith(WITHOUT_STD)}".lower()
    return _summed(name.removesuffix(WITHOUT_STD), by_std)


def user_method(text: str) -> Method:
    """Return the method for a user's function, with a loss that sums over tokens.

    Args:
        text: `file.py:f`. A function with the argument `batch_keys` is called like
            `AgentTrainer.estimate_advantages`, any other function like one of verl's estimators.

    Raises:
        ConfigError: the function does not exist.
    """
    function = find_object(text, Place(OPTION))
    if not callable(function):
        raise ConfigError(OPTION, f"{text!r} is not a function", "Pass file.py:f")
    if "batch_keys" in inspect.signature(function).parameters:
        return _summed(function)
    ADV_ESTIMATOR_REGISTRY[text] = function
    return _summed(text)


def _summed(estimator: Any, *overrides: str) -> Method:
    return _method(estimator, _compose("actor_rollout_ref.actor.loss_agg_mode=token-sum", *overrides))


def _method(estimator: Any, config: Any) -> Method:
    config.algorithm.adv_estimator = estimator if isinstance(estimator, str) else "rloo"
    actor: Any = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    is_coupled = estimator in COUPLED or estimator not in BUILT_IN
    return Method(estimator, config.algorithm, actor, trained_samples.fewest(config), is_coupled)


def _compose(*overrides: str) -> Any:
    with hydra.initialize_config_module("agent_rl.config", version_base=None):
        return hydra.compose(
            "agent",
            [
                "hydra.searchpath=[pkg://verl.trainer.config]",
                *("kl=none", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=2"),
                *(f"+algorithm.gdpo_reward_keys=[{','.join(COMPONENTS)}]", *overrides),
            ],
        )
