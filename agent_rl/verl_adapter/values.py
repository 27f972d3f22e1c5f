"""Checks values of verl's own keys that verl takes and cannot use: types, sizes, paths, the estimator.

verl notices most of them in a worker, after Ray and the model have been loaded, and some never. The launcher and the
doctor run these checks on the composed configuration, and the trainer runs them before Ray starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.errors import ConfigError, did_you_mean

__all__ = ["ESTIMATOR", "check_types", "check_values"]

ACTOR, ROLLOUT, CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "critic"

SIZES = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "trainer.total_epochs",
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    f"{ACTOR}.ppo_mini_batch_size",
    f"{ACTOR}.ppo_epochs",
    f"{ACTOR}.ppo_max_token_len_per_gpu",
    f"{ROLLOUT}.n",
    f"{ROLLOUT}.val_kwargs.n",
    f"{ROLLOUT}.tensor_model_parallel_size",
    f"{ROLLOUT}.agent.num_workers",
    f"{ROLLOUT}.multi_turn.max_parallel_calls",
    f"{ROLLOUT}.multi_turn.max_tool_response_length",
)
"""Keys that hold a whole number of 1 or more."""

OPTIONAL_SIZES = (
    "trainer.total_training_steps",
    "data.gen_batch_size",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    f"{ROLLOUT}.max_model_len",
    f"{ROLLOUT}.multi_turn.max_assistant_turns",
)
"""Keys that hold such a number or null."""

FILES = (
    "data.train_files",
    "data.val_files",
    "data.custom_cls.path",
    f"{ROLLOUT}.multi_turn.tool_config_path",
    f"{ROLLOUT}.multi_turn.function_tool_path",
    f"{ROLLOUT}.agent.agent_loop_config_path",
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "agent_rl.trace.path",
    "agent_rl.tools.cassette.path",
)
SUFFIXES = (".parquet", ".jsonl", ".json", ".yaml", ".yml", ".py")
"""Of the files, for an example in a message."""

FOLDERS = (
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.tokenizer_path",
    f"{CRITIC}.model.path",
    "reward.reward_model.model_path",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "trainer.resume_from_path",
)

OF_ANY_TYPE = ("algorithm.rollout_correction.rollout_is_threshold",)
"""Keys whose default is a number and that take text as well."""

ESTIMATOR = "algorithm.adv_estimator"
VERLS_CRITIC = "~/models/deepseek-llm-7b-chat"
"""The critic's model in verl's defaults."""
ALGORITHMS = ("dapo", "gspo", "ppo")
"""Names of our group `algo` that are no estimators."""
NOT_IN_V1 = {
    "gdpo": "Set normalize: group on each component of agent_rl.reward, with algo=grpo",
    "optimal_token_baseline": "Use algo=rloo",
    "tir_optimal_token_baseline": "Use algo=rloo",
}
"""Estimators of verl that need values which its v1 trainer does not compute, and what to use instead."""

ENGINE = f"{ROLLOUT}.name"
SUPPORTED_ENGINE = "sglang"

ROUTED_EXPERTS = f"{ROLLOUT}.enable_rollout_routing_replay"

KL_NAME_KEYS = ("algorithm.kl_penalty", f"{ACTOR}.kl_loss_type")
KL_NAMES = ("abs", "k1", "k2", "k3", "kl", "low_var_kl", "mse")


def check_values(config: Any) -> None:
    """Refuse values that verl takes and cannot use.

    Args:
        config: the whole configuration, composed; interpolations that cannot be resolved are left to others.

    Raises:
        ConfigError: naming the first such key, its value and what to write.
    """
    for key in (*SIZES, *OPTIONAL_SIZES):
        _check_size(key, _get(config, key, unresolved=1), is_optional=key in OPTIONAL_SIZES)
    for key in (*FILES, *FOLDERS):
        for path in _paths(_get(config, key)):
            _check_path(key, path, folder=key in FOLDERS)
    _check_engine(str(_get(config, ENGINE, unresolved=SUPPORTED_ENGINE)))
    _check_estimator(config)
    if _get(config, ROUTED_EXPERTS) is True:
        problem = "the agents of agent_rl do not keep the experts that the engine has chosen"
        raise ConfigError(ROUTED_EXPERTS, problem, "Set it to false, and router_replay.mode to R2 or disabled")
    for key in KL_NAME_KEYS:
        name = str(_get(config, key, unresolved="kl"))
        if name.removesuffix("+") not in KL_NAMES:
            raise ConfigError(key, f"there is no estimate of the KL {name!r}", did_you_mean(name, KL_NAMES))


def _check_engine(name: str) -> None:
    """Refuse engines with which no run of agent_rl has been tried."""
    if name != SUPPORTED_ENGINE:
        raise ConfigError(
            ENGINE,
            f"agent_rl trains with SGLang (0.5.12 on a CPU, where every recipe is tried; 0.5.13 on GPUs), and has not "
            f"been tried with {name!r}",
            "Set it to sglang; agent-rl eval also takes a server of vLLM (--endpoint, policy=vllm or chat)",
        )


def check_types(config: Any, defaults: Any) -> None:
    """Refuse text where verl's default is a number or a truth value, and a number where it is a truth value.

    Text such as `no` counts as true in verl, and other text fails where it is used.

    Args:
        config: the whole configuration, composed.
        defaults: verl's own.

    Raises:
        ConfigError: naming the first such key, its value and what to write.
    """
    for key, default in _scalars(defaults):
        value = _get(config, key, unresolved=default)
        if value == default or value is None or key in OF_ANY_TYPE:
            continue
        fits = isinstance(value, bool) if isinstance(default, bool) else not isinstance(value, bool | str)
        if not fits and not (isinstance(default, bool) and value in (0, 1)):
            kind = "true or false" if isinstance(default, bool) else "a number"
            raise ConfigError(key, f"expected {kind}, got {value!r}", f"Write for example {key}={_written(default)}")


def _scalars(node: Any, path: str = "") -> Iterator[tuple[str, bool | int | float]]:
    """Every key with a number or a truth value, and that value."""
    for key in node:
        here, child = f"{path}.{key}".lstrip("."), node._get_node(key)
        if OmegaConf.is_dict(child):
            if not child._is_none() and not child._is_interpolation():
                yield from _scalars(child, here)
        elif isinstance(value := child._value(), bool | int | float):
            yield here, value


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_size(key: str, value: Any, *, is_optional: bool) -> None:
    if (value is None and is_optional) or (type(value) is int and value >= 1):
        return
    shown = "null" if value is None else repr(value)
    remedy = f"Write for example {key}=1{', or null for no limit of its own' if is_optional else ''}"
    raise ConfigError(key, f"expected a whole number of 1 or more, got {shown}", remedy)


def _check_path(key: str, path: str, *, folder: bool) -> None:
    """What does not exist is left to whoever reads it: it may be a model of the hub, or made by the run."""
    local = os.path.expanduser(path)
    if not folder and os.path.isdir(local):
        inside = sorted(name for name in os.listdir(local) if name.endswith(SUFFIXES))
        example = os.path.join(path, inside[0] if inside else "NAME")
        raise ConfigError(key, f"{path!r} is a folder, and a file belongs here", f"Name the file, such as {example}")
    if folder and os.path.isfile(local):
        remedy = f"Name a folder, such as {os.path.dirname(path) or '.'}"
        raise ConfigError(key, f"{path!r} is a file, and a folder belongs here", remedy)


def _check_estimator(config: Any) -> None:
    """Refuse an estimator without the rest of what it needs; the group `algo` sets all of it."""
    name = _get(config, ESTIMATOR)
    if name in ALGORITHMS:
        raise ConfigError(ESTIMATOR, f"{name!r} is an algorithm, not an estimator", f"Write algo={name}")
    if name in NOT_IN_V1:
        raise ConfigError(ESTIMATOR, f"verl's v1 trainer does not compute what {name!r} needs", NOT_IN_V1[name])
    if name != "gae":
        return
    if _get(config, f"{CRITIC}.enable") is False:
        raise ConfigError(f"{CRITIC}.enable", f"{ESTIMATOR}=gae needs a critic (value False)", "Write algo=ppo")
    model, micro = (_get(config, f"{CRITIC}.{key}") for key in ("model.path", "ppo_micro_batch_size_per_gpu"))
    if micro is None and model == VERLS_CRITIC and not os.path.isdir(os.path.expanduser(model)):
        problem = f"'gae' needs a critic, and {CRITIC}.model.path is verl's default, {model}"
        raise ConfigError(ESTIMATOR, problem, "Write algo=ppo, which sets up the critic")


def _get(config: Any, key: str, unresolved: Any = None) -> Any:
    """A value; `unresolved` for a key that is not there and for one that refers to what is not there."""
    try:
        value = OmegaConf.select(config, key, default=unresolved)
        return list(value) if OmegaConf.is_list(value) else value
    except OmegaConfBaseException:
        return unresolved


def _paths(value: Any) -> Iterator[str]:
    """The local paths that a key names."""
    for path in [value] if isinstance(value, str) else value or ():
        if isinstance(path, str) and "://" not in path:
            yield path
