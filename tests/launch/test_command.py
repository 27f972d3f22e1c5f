from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch import command as module
from agent_rl.launch.command import JOINING, joins_ray, require_device, rewrite, trainer_command

RECIPES = Path(__file__).parents[2] / "recipes"


def test_on_a_cpu_the_profile_and_the_small_size_are_laid_over_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    command = trainer_command(RECIPES / "gsm8k_calculator", ["trainer.total_training_steps=5"])
    assert command[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert command[-3:] == ["+platform=cpu", "size=cpu", "trainer.total_training_steps=5"]


def test_on_an_accelerator_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    command = trainer_command(RECIPES / "gsm8k_calculator", script="mine.py")
    assert not [part for part in command if "platform" in part or "size" in part]
    assert command[1] == "mine.py"


def test_without_accelerator_and_without_the_switch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(module, "has_accelerator", lambda: False)
    with pytest.raises(ConfigError, match="VERL_PLATFORM=cpu"):
        require_device()


def test_our_section_can_be_overridden_though_hydra_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert trainer_command(RECIPES / "quickstart", ["agent_rl.trace.path=x"])[-1] == "++agent_rl.trace.path=x"


def test_an_override_without_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.total_epochs: not a hydra override"):
        rewrite(["trainer.total_epochs"])


@pytest.mark.parametrize(
    ("environ", "joins"),
    [
        ({}, False),
        ({"RAY_ADDRESS": ""}, False),
        ({"RAY_ADDRESS": "local"}, False),
        ({"RAY_ADDRESS": "auto"}, True),
        ({"RAY_ADDRESS": "head:6379"}, True),
    ],
)
def test_only_a_named_cluster_is_joined(environ: dict[str, str], joins: bool) -> None:
    assert joins_ray(environ) is joins


def test_sizes_that_ray_refuses_when_it_joins_are_taken_back() -> None:
    assert "++ray_kwargs.ray_init.num_cpus=null" in JOINING
