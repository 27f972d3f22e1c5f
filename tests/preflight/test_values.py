"""Values of verl's keys that it takes and cannot use."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.launch.composition import verl_defaults
from agent_rl.preflight import values
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import checks_at

ROLLOUT = "actor_rollout_ref.rollout"


def errors(config: Any) -> list[Any]:
    case = RunCase(config=config)
    ours = [one for one in checks_at("trainer") if one.function.__module__ == values.__name__]
    return [*values.wrong_types(case, verl_defaults()), *(each for one in ours for each in one.found(case))]


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
        assert refused(**{name: 0}).startswith(f"{key}: expected a whole number of 1 or more, got 0. Write for example")
        assert "got -1" in refused(**{name: -1})
        assert bool(errors(made(**{name: None}))) == (key in values.SIZES)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer__nnodes", "two", "expected a number, got 'two'. Write for example trainer.nnodes=1"),
        ("trainer__nnodes", True, "expected a whole number of 1 or more, got True"),
        ("actor_rollout_ref__rollout__n", 2.5, "expected a whole number of 1 or more, got 2.5"),
        ("actor_rollout_ref__actor__optim__lr", "fast", "expected a number, got 'fast'"),
        ("data__shuffle", "no", "expected true or false, got 'no'. Write for example data.shuffle=true"),
        ("trainer__val_before_train", 2, "expected true or false, got 2"),
    ],
)
def test_a_value_has_the_type_of_verls_default(key: str, value: Any, message: str) -> None:
    assert message in refused(**{key: value})


def test_types_that_verl_takes_pass() -> None:
    temperature = {"actor_rollout_ref__rollout__val_kwargs__temperature": 0.5}
    assert not errors(made(data__shuffle=0, algorithm__gamma=1, **temperature))
    assert not errors(made(algorithm__rollout_correction__rollout_is_threshold="0.5_5.0"))


def test_engines_divide_the_gpus() -> None:
    two = {"actor_rollout_ref__rollout__tensor_model_parallel_size": 2}
    assert not errors(made(**two, trainer__n_gpus_per_node=1, trainer__nnodes=2))
    assert refused(**two, trainer__n_gpus_per_node=1).endswith(
        "an engine of 2 GPUs does not divide the run's 1 (trainer.n_gpus_per_node x nnodes). "
        "Set actor_rollout_ref.rollout.tensor_model_parallel_size=1: an engine for each GPU, or another divisor of 1"
    )
    separate = {"actor_rollout_ref__hybrid_engine": False, "actor_rollout_ref__rollout__nnodes": 1}
    assert "divide the run's 3" in refused(**two, **separate, actor_rollout_ref__rollout__n_gpus_per_node=3)


def test_a_folder_is_not_a_file_and_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    (file := tmp_path / "rows.parquet").touch()
    for key in values.FILES:
        message = refused(**{key.replace(".", "__"): str(tmp_path)})
        assert message.endswith(
            f"{str(tmp_path)!r} is a folder, and a file belongs here. Name the file, such as {file}"
        )
    for key in values.FOLDERS:
        message = refused(**{key.replace(".", "__"): str(file)})
        assert message.endswith(f"is a file, and a folder belongs here. Name a folder, such as {tmp_path}")


def test_each_of_several_data_files_is_looked_at(tmp_path: Path) -> None:
    (file := tmp_path / "rows.parquet").touch()
    assert not errors(made(data__train_files=[str(file), "hdfs://host/rows.parquet"]))
    assert "is a folder" in refused(data__train_files=[str(file), str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("gae", "Write algo=ppo"),
        ("ppo", "Write algo=ppo"),
        ("dapo", "Write algo=dapo"),
        ("gdpo", "normalize: group"),
        ("optimal_token_baseline", "Use algo=rloo"),
    ],
)
def test_an_estimator_comes_with_the_rest_of_its_algorithm(name: str, remedy: str) -> None:
    assert remedy in refused(algorithm__adv_estimator=name, critic__model__path=values.VERLS_CRITIC)


def test_a_critic_that_is_set_up_by_hand_passes() -> None:
    critic = {"critic__model__path": "mine", "critic__ppo_micro_batch_size_per_gpu": 1}
    assert not errors(made(algorithm__adv_estimator="gae", **critic))
    (error,) = errors(made(algorithm__adv_estimator="gae", critic__enable=False))
    assert (error.key, error.remedy) == ("critic.enable", "Write algo=ppo")


def test_the_estimate_of_the_kl_is_one_of_verls() -> None:
    assert not errors(made(algorithm__kl_penalty="k3+", actor_rollout_ref__actor__kl_loss_type="low_var_kl+"))
    assert "Did you mean 'low_var_kl'" in refused(actor_rollout_ref__actor__kl_loss_type="low_var")


@pytest.mark.parametrize("name", ["vllm", "trtllm", "hf"])
def test_engines_that_were_never_tried_are_refused(name: str) -> None:
    message = refused(actor_rollout_ref__rollout__name=name)
    assert f"has not been tried with {name!r}" in message
    assert "SGLang (0.5.12 on a CPU" in message


def test_routed_experts_are_refused() -> None:
    """Without them verl's Megatron engine raises in the first update."""
    message = refused(actor_rollout_ref__rollout__enable_rollout_routing_replay=True)
    assert "do not keep the experts" in message
