"""Values of verl's keys that it takes and cannot use."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.launch.composition import verl_defaults
from agent_rl.preflight import values
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import checks_at
from agent_rl.trajectory.run_files import leaves

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR, CORRECTION = "actor_rollout_ref__actor", "algorithm__rollout_correction"
DEFAULTS = dict(leaves(OmegaConf.to_container(verl_defaults())))


def errors(config: Any) -> list[Any]:
    case = RunCase(config=config)
    ours = [one for one in checks_at("trainer") if one.function.__module__ == values.__name__]
    return [*values.wrong_types(case, DEFAULTS), *(each for one in ours for each in one.found(case))]


def made(**keys: Any) -> Any:
    """A configuration with these keys; `__` stands for a dot."""
    config = OmegaConf.create()
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return config


def refused(**keys: Any) -> str:
    """The first error about the first key."""
    key = next(iter(keys)).replace("__", ".")
    error = next(error for error in errors(made(**keys)) if error.key == key)
    assert error.remedy
    return str(error)


def test_verls_defaults_pass() -> None:
    assert errors(OmegaConf.merge(verl_defaults(), {"algorithm": {"adv_estimator": "grpo"}})) == []


def test_a_size_is_one_or_more_and_some_may_be_null() -> None:
    for key in (*values.SIZES, *values.OPTIONAL_SIZES):
        name = key.replace(".", "__")
        assert refused(**{name: 0}).startswith(f"{key}: expected a whole number of 1 or more, got 0. Write, for")
        assert "got -1" in refused(**{name: -1})
        assert bool(errors(made(**{name: None}))) == (key in values.SIZES)


TWO = {"actor_rollout_ref__rollout__tensor_model_parallel_size": 2}
SEPARATE = {"actor_rollout_ref__hybrid_engine": False, "actor_rollout_ref__rollout__nnodes": 1}
STORED = values.STORED.replace(".", "__")
VERLS = {"critic__model__path": values.VERLS_CRITIC}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({STORED: 99, "data__train_batch_size": 10, "actor_rollout_ref__rollout__n": 10}, "at most 99"),
        ({"reward__sandbox_fusion__url": "localhost:8080"}, "got 'localhost:8080'. Write, for example, http://"),
        ({"trainer__nnodes": "two"}, "expected a number, got 'two'. Write, for example, trainer.nnodes=1"),
        ({"trainer__nnodes": True}, "expected a whole number of 1 or more, got True"),
        ({"actor_rollout_ref__rollout__n": 2.5}, "expected a whole number of 1 or more, got 2.5"),
        ({"actor_rollout_ref__actor__optim__lr": "fast"}, "expected a number, got 'fast'"),
        ({"data__shuffle": "no"}, "expected true or false, got 'no'. Write, for example, data.shuffle=true"),
        ({"trainer__val_before_train": 2}, "expected true or false, got 2"),
        (
            {**TWO, "trainer__n_gpus_per_node": 1},
            "1 GPUs (trainer.n_gpus_per_node x nnodes) do not divide into engines of 2 GPUs. Set "
            "actor_rollout_ref.rollout.tensor_model_parallel_size=1 (one engine per GPU), or another divisor of 1",
        ),
        ({**TWO, **SEPARATE, "actor_rollout_ref__rollout__n_gpus_per_node": 3}, "not divide into engines of 2"),
        ({"algorithm__adv_estimator": "gae", **VERLS}, "Write algo=ppo"),
        ({"algorithm__adv_estimator": "ppo", **VERLS}, "Write algo=ppo"),
        ({"algorithm__adv_estimator": "dapo", **VERLS}, "Write algo=dapo"),
        ({"algorithm__use_kl_in_reward": True, "algorithm__adv_estimator": "gdpo"}, "Write kl=loss"),
        ({f"{CORRECTION}__bypass_mode": True, "algorithm__adv_estimator": "optimal_token_baseline"}, "Set false"),
        ({"critic__enable": False, "algorithm__adv_estimator": "gae"}, "Write algo=ppo"),
        ({"actor_rollout_ref__actor__kl_loss_type": "low_var"}, "Did you mean 'low_var_kl'"),
        ({"actor_rollout_ref__rollout__name": "vllm"}, "has not been tried with 'vllm'"),
        (
            {f"{ACTOR}__loss_agg_mode": "token-mean", f"{ACTOR}__policy_loss__loss_mode": "sapo"},
            "'sapo' averages the tokens of a sequence and then the sequences, so 'token-mean' has no effect",
        ),
        ({f"{CORRECTION}__bypass_mode": True, f"{CORRECTION}__rollout_is": "token"}, "rollout_is=token compares"),
        ({f"{ROLLOUT}.calculate_log_probs": False, f"{CORRECTION}__rollout_rs": "seq_mean_k1"}, "seq_mean_k1 needs"),
        # without them verl's Megatron engine raises in the first update
        ({"actor_rollout_ref__rollout__enable_rollout_routing_replay": True}, "engine's choice of experts"),
    ],
)
def test_a_value_that_verl_cannot_use_is_refused(keys: dict[str, Any], message: str) -> None:
    assert message in refused(**keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"data__shuffle": 0, "algorithm__gamma": 1, "actor_rollout_ref__rollout__val_kwargs__temperature": 0.5},
        {f"{CORRECTION}__rollout_is_threshold": "0.5_5.0"},
        {f"{CORRECTION}__bypass_mode": True},
        {f"{ACTOR}__loss_agg_mode": "seq-mean-token-mean", f"{ACTOR}__policy_loss__loss_mode": "geo_mean"},
        {**TWO, "trainer__n_gpus_per_node": 1, "trainer__nnodes": 2},
        {"algorithm__adv_estimator": "gae", "critic__model__path": "mine", "critic__ppo_micro_batch_size_per_gpu": 1},
        {"algorithm__kl_penalty": "k3+", "actor_rollout_ref__actor__kl_loss_type": "low_var_kl+"},
    ],
)
def test_values_that_verl_can_use_pass(keys: dict[str, Any]) -> None:
    assert not errors(made(**keys))


@pytest.mark.parametrize("key", values.OF_OWN_LOOPS)
def test_a_limit_of_our_loops_is_refused_for_a_program(key: str) -> None:
    agent = {"actor_rollout_ref__rollout__agent__default_agent_loop": "gateway_agent"}
    value = {"agent_rl.hooks": "my.Hooks", "agent_rl.final_turn.enabled": True}.get(key, 5)
    assert "no effect on the program of gateway_agent" in refused(**{key.replace(".", "__"): value}, **agent)
    assert errors(made(**{key.replace(".", "__"): value})) == errors(made())
