"""Checks for values that verl's configuration accepts but verl cannot use, such as wrong types or sizes.

verl reports most of these values only in a worker, after Ray has started and the model is loaded, and some not at all.
Other checks report values that cannot be resolved.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import check
from agent_rl.sandbox.fusion import FusionServer

AT = ("compose", "trainer")

ACTOR, ROLLOUT, CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "critic"
FUSION = "reward.sandbox_fusion"

OF_OWN_LOOPS = {
    "agent_rl.budget.max_seconds": "Set agent_rl.gateway.timeout_s",
    **dict.fromkeys(
        (f"agent_rl.{key}" for key in ("budget.max_tool_calls", "budget.max_malformed", "budget.max_repeats")),
        "Limit it in the program, or set actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
    ),
    "agent_rl.final_turn.enabled": "Make the program itself ask for a final answer",
    "agent_rl.hooks": "Change the program, or choose another agent",
}
"""Settings that have no effect on the program of `gateway_agent`, and the remedy for each."""

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
    f"{FUSION}.max_concurrent",
    f"{FUSION}.memory_limit_mb",
)
"""Keys whose value is a whole number of 1 or more."""

OPTIONAL_SIZES = (
    "trainer.total_training_steps",
    "data.gen_batch_size",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    f"{ROLLOUT}.max_model_len",
    f"{ROLLOUT}.multi_turn.max_assistant_turns",
)
"""Keys whose value is null or a whole number of 1 or more."""

PARALLEL = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
"""Rollout keys whose values multiply to the number of GPUs per engine."""

OF_ANY_TYPE = ("algorithm.rollout_correction.rollout_is_threshold",)
"""Keys that accept text although their default is a number."""

ESTIMATOR = "algorithm.adv_estimator"
VERLS_CRITIC = "~/models/deepseek-llm-7b-chat"
"""verl's default model for the critic."""
ALGORITHMS = ("cispo", "dapo", "dr_grpo", "gigpo", "gspo", "maxrl", "ppo", "sapo", "turn")
"""Names in agent_rl's `algo` group that are not estimators."""

STORED = "transfer_queue.backend.SimpleStorage.total_storage_size"
ENGINE = f"{ROLLOUT}.name"
SUPPORTED_ENGINE = "sglang"

ROUTED_EXPERTS = f"{ROLLOUT}.enable_rollout_routing_replay"

CORRECTION = "algorithm.rollout_correction"
UNREAD = {
    ("gdpo", "algorithm.use_kl_in_reward"): ("normalizes the components but not the KL penalty", "Write kl=loss"),
    **{
        (name, f"{CORRECTION}.bypass_mode"): (
            "needs the pass that computes old log-probs, which this key skips",
            "Set false",
        )
        for name in ("optimal_token_baseline", "tir_optimal_token_baseline")
    },
}
"""The reason why a key must not be set with an estimator, and the remedy, by estimator and key."""
MEANS_OF_SEQUENCES = ("geo_mean", "sapo")
"""verl's policy losses that ignore `loss_agg_mode`."""
MEAN_OF_SEQUENCES = "seq-mean-token-mean"

KL_NAME_KEYS = ("algorithm.kl_penalty", f"{ACTOR}.kl_loss_type")
KL_NAMES = ("abs", "k1", "k2", "k3", "kl", "low_var_kl", "mse")


Errors = Iterator[ConfigError]


@check("configuration", at=AT)
def section(case: RunCase) -> None:
    """The `agent_rl` section contains only known keys and valid values."""
    case.settings  # noqa: B018 - reading the settings raises an error for a wrong key or value


@check("configuration", at=AT)
def sizes(case: RunCase) -> Errors:
    """Sizes are whole numbers of 1 or more."""
    for key in (*SIZES, *OPTIONAL_SIZES):
        value, is_optional = _get(case, key, unresolved=1), key in OPTIONAL_SIZES
        if (type(value) is not int or value < 1) and not (value is None and is_optional):
            text = "null" if value is None else repr(value)
            remedy = f"Write, for example, {key}=1{', or null for no separate limit' if is_optional else ''}"
            yield ConfigError(key, f"expected a whole number of 1 or more, got {text}", remedy)


@check("configuration", at=AT)
def stored_trajectories(case: RunCase) -> Errors:
    """TransferQueue has room for all trajectories of a step; sessions that find no room would fail."""
    prompts, samples, most = (_get(case, key) for key in ("data.train_batch_size", f"{ROLLOUT}.n", STORED))
    if all(type(each) is int for each in (prompts, samples, most)) and prompts * samples > most:
        problem = f"a step has {prompts * samples} trajectories, but TransferQueue stores at most {most}"
        yield ConfigError(STORED, problem, "Set it to null, for no limit")


@check("configuration", at=AT)
def fusion_server(case: RunCase) -> None:
    """The address of a Sandbox Fusion server is a URL."""
    if url := _get(case, f"{FUSION}.url"):
        FusionServer(str(url))


@check("configuration", at=AT)
def engine(case: RunCase) -> Errors:
    """The engine is SGLang, with which agent_rl is tested, and routed experts are not replayed."""
    if (name := str(_get(case, ENGINE, unresolved=SUPPORTED_ENGINE))) != SUPPORTED_ENGINE:
        yield ConfigError(
            ENGINE,
            f"agent_rl trains with SGLang (0.5.12 on a CPU, where every recipe is tried; 0.5.13 on GPUs), and has not "
            f"been tried with {name!r}",
            "Set it to sglang; agent-rl eval also accepts a vLLM server (--endpoint, policy=vllm or chat)",
        )
    if _get(case, ROUTED_EXPERTS) is True:
        problem = "agent_rl's agents do not store the engine's choice of experts"
        yield ConfigError(ROUTED_EXPERTS, problem, "Set it to false, and router_replay.mode to R2 or disabled")


@check("configuration", at=AT)
def estimator(case: RunCase) -> Errors:
    """The other settings that an estimator needs are set, as in the `algo` group."""
    name = _get(case, ESTIMATOR)
    if name in ALGORITHMS:
        yield ConfigError(ESTIMATOR, f"{name!r} is an algorithm, not an estimator", f"Write algo={name}")
    for (reader, key), (problem, remedy) in UNREAD.items():
        if name == reader and (value := _get(case, key)) not in (None, False):
            yield ConfigError(key, f"{name!r} {problem} (value {value!r})", remedy)
    if name != "gae":
        return
    if _get(case, f"{CRITIC}.enable") is False:
        problem = f"it is False, but {ESTIMATOR}=gae needs a critic"
        yield ConfigError(f"{CRITIC}.enable", problem, "Write algo=ppo, which sets up the critic")
    model, micro = (_get(case, f"{CRITIC}.{key}") for key in ("model.path", "ppo_micro_batch_size_per_gpu"))
    if micro is None and model == VERLS_CRITIC and not os.path.isdir(os.path.expanduser(model)):
        problem = f"'gae' needs a critic, and {CRITIC}.model.path is verl's default, {model}"
        yield ConfigError(ESTIMATOR, problem, "Write algo=ppo, which sets up the critic")


@check("configuration", at=AT)
def program_limits(case: RunCase) -> Errors:
    """No limits are set that only agent_rl's own loop applies, because the program of `gateway_agent` ignores them."""
    for key, remedy in OF_OWN_LOOPS.items() if case.default_agent == "gateway_agent" else ():
        if (value := _get(case, key)) not in (None, False):
            yield ConfigError(key, f"it has no effect on the program of gateway_agent (value {value!r})", remedy)


@check("configuration", at=AT)
def loss_aggregation(case: RunCase) -> Errors:
    """The policy loss supports the averaging method that `loss_agg_mode` selects."""
    loss, key = _get(case, f"{ACTOR}.policy_loss.loss_mode"), f"{ACTOR}.loss_agg_mode"
    if loss in MEANS_OF_SEQUENCES and (mode := _get(case, key)) != MEAN_OF_SEQUENCES:
        problem = f"{loss!r} averages the tokens of a sequence and then the sequences, so {mode!r} has no effect"
        yield ConfigError(key, problem, f"Set it to {MEAN_OF_SEQUENCES}, or choose another algorithm")


@check("configuration", at=AT)
def correction(case: RunCase) -> Errors:
    """A correction has both sets of log-probs to compare: the engine's, and the trainer's from before the update."""
    keys = [f"{CORRECTION}.{name}" for name in ("rollout_is", "rollout_rs")]
    if not (active := [f"{key}={value}" for key in keys if (value := _get(case, key)) is not None]):
        return
    if _get(case, f"{CORRECTION}.bypass_mode") is True:
        problem = f"this key skips computing the trainer's log-probs, which {active[0]} compares with the engine's"
        yield ConfigError(f"{CORRECTION}.bypass_mode", problem, "Set it to false, or write correction=none")
    if _get(case, f"{ROLLOUT}.calculate_log_probs") is False:
        problem = f"it is False, but {active[0]} needs the engine's log-probs"
        yield ConfigError(f"{ROLLOUT}.calculate_log_probs", problem, "Set it to true, or write correction=none")


@check("configuration", at=AT)
def parallel(case: RunCase) -> Errors:
    """The GPUs divide evenly into engines; otherwise, Ray would wait until a timeout for the last engine's GPUs."""
    owner = "trainer" if _get(case, "actor_rollout_ref.hybrid_engine", unresolved=True) else ROLLOUT
    counts = [_get(case, f"{owner}.{key}", unresolved=1) for key in ("nnodes", "n_gpus_per_node")]
    sizes = [_get(case, f"{ROLLOUT}.{key}", unresolved=1) for key in PARALLEL]
    if not all(type(each) is int and each >= 1 for each in (*counts, *sizes)):
        return
    gpus, group = math.prod(counts), math.prod(sizes)
    if gpus % group:
        key = f"{ROLLOUT}.{PARALLEL[0]}"
        problem = f"{gpus} GPUs ({owner}.n_gpus_per_node x nnodes) do not divide into engines of {group} GPUs"
        yield ConfigError(key, problem, f"Set {key}=1 (one engine per GPU), or another divisor of {gpus}")


@check("configuration", at=AT)
def kl_estimate(case: RunCase) -> Errors:
    """The KL estimators that the configuration names exist in verl."""
    for key in KL_NAME_KEYS:
        name = str(_get(case, key, unresolved="kl"))
        if name.removesuffix("+") not in KL_NAMES:
            yield ConfigError(key, f"there is no KL estimator {name!r}", did_you_mean(name, KL_NAMES))


def wrong_types(case: RunCase, defaults: Mapping[str, Any]) -> Errors:
    """Yield errors for text if verl's default is a number or a boolean, and for numbers if the default is a boolean.

    If the default is a boolean, verl treats text such as `no` as true; other text fails where it is used.

    Args:
        case: the run, with its configuration.
        defaults: verl's defaults by key.
    """
    for key, default in defaults.items():
        if not isinstance(default, bool | int | float):
            continue
        value = _get(case, key, unresolved=default)
        if value == default or value is None or key in OF_ANY_TYPE:
            continue
        fits = isinstance(value, bool) if isinstance(default, bool) else not isinstance(value, bool | str)
        if not fits and not (isinstance(default, bool) and value in (0, 1)):
            kind = "true or false" if isinstance(default, bool) else "a number"
            example = str(default).lower() if isinstance(default, bool) else default
            yield ConfigError(key, f"expected {kind}, got {value!r}", f"Write, for example, {key}={example}")


def _get(case: RunCase, key: str, unresolved: Any = None) -> Any:
    """Return a value, or `unresolved` if the key is missing or refers to a missing key."""
    try:
        value = OmegaConf.select(case.config, key, default=unresolved)
        return list(value) if OmegaConf.is_list(value) else value
    except OmegaConfBaseException:
        return unresolved
