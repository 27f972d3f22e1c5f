"""Values of verl's keys that it takes and cannot use."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import verl_defaults
from agent_rl.verl_adapter import values

ROLLOUT = "actor_rollout_ref.rollout"


def checked(**keys: Any) -> None:
    """A configuration with these keys; `__` stands for a dot."""
    config = OmegaConf.create()
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    values.check_types(config, verl_defaults())
    values.check_values(config)


def refused(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(**keys)
    assert caught.value.key == next(iter(keys)).replace("__", ".")
    return str(caught.value)


def test_verls_defaults_pass() -> None:
    config = OmegaConf.merge(verl_defaults(), {"algorithm": {"adv_estimator": "grpo"}})
    values.check_types(config, verl_defaults())
    values.check_values(config)


@pytest.mark.parametrize("key", values.SIZES)
@pytest.mark.parametrize("value", [0, -1, None])
def test_a_size_is_one_or_more(key: str, value: Any) -> None:
    shown = "null" if value is None else value
    assert f"expected a whole number of 1 or more, got {shown}" in refused(**{key.replace(".", "__"): value})


@pytest.mark.parametrize("key", values.OPTIONAL_SIZES)
def test_some_sizes_may_be_null(key: str) -> None:
    name = key.replace(".", "__")
    checked(**{name: None})
    assert "or null" in refused(**{name: 0})


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
    checked(data__shuffle=0, algorithm__gamma=1, actor_rollout_ref__rollout__val_kwargs__temperature=0.5)
    checked(algorithm__rollout_correction__rollout_is_threshold="0.5_5.0")


@pytest.mark.parametrize("key", values.FILES)
def test_a_folder_is_no_file(key: str, tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "README.md").touch()
    message = refused(**{key.replace(".", "__"): str(tmp_path)})
    assert f"{str(tmp_path)!r} is a folder" in message
    assert f"such as {tmp_path}/rows.parquet" in message


@pytest.mark.parametrize("key", values.FOLDERS)
def test_a_file_is_no_folder(key: str, tmp_path: Path) -> None:
    (file := tmp_path / "model.py").touch()
    message = refused(**{key.replace(".", "__"): str(file)})
    assert f"is a file, and a folder belongs here. Name a folder, such as {tmp_path}" in message


def test_each_of_several_data_files_is_looked_at(tmp_path: Path) -> None:
    (file := tmp_path / "rows.parquet").touch()
    checked(data__train_files=[str(file), "hdfs://host/rows.parquet"])
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
    checked(algorithm__adv_estimator="gae", critic__model__path="mine", critic__ppo_micro_batch_size_per_gpu=1)
    with pytest.raises(ConfigError, match=r"critic\.enable: .* needs a critic .value False.\. Write algo=ppo"):
        checked(algorithm__adv_estimator="gae", critic__enable=False)


def test_the_estimate_of_the_kl_is_one_of_verls() -> None:
    checked(algorithm__kl_penalty="k3+", actor_rollout_ref__actor__kl_loss_type="low_var_kl+")
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
