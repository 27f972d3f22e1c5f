"""`agent-rl train` up to the point where something is started; what is started is tested in tests/e2e."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch import training

RECIPE = str(Path(__file__).parents[2] / "recipes/gsm8k_calculator")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that this process would have become."""
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, command: seen.append(command))
    monkeypatch.setattr(training, "_make_tiny_model", lambda config: None)
    return seen


def test_on_one_node_this_process_becomes_the_trainer(started: list[list[str]]) -> None:
    training.train(RECIPE, ["trainer.total_epochs=1"])
    assert started[0][:3] == [sys.executable, "-m", "verl.trainer.main_ppo"]
    assert started[0][-1] == "trainer.total_epochs=1"


@pytest.mark.parametrize("override", ["trainer.nnode=2", "trainer.project_name=${nothing}"])
def test_a_wrong_configuration_starts_nothing(override: str, started: list[list[str]]) -> None:
    with pytest.raises(ConfigError):
        training.train(RECIPE, [override])
    assert started == []


def test_the_nodes_are_said_to_verl_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NNODES", "3"), ("NODE_RANK", "0"), ("MASTER_ADDR", "host0")):
        monkeypatch.setenv(name, value)
    composed, notes = training.dry_run(RECIPE)
    assert OmegaConf.create(composed).trainer.nnodes == 3
    assert "trainer.nnodes=3" in notes[-1]
    assert "++ray_kwargs.ray_init.num_gpus=null" in notes[-1]  # Ray refuses it from a driver that joins


def test_the_nodes_of_the_user_win(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NNODES", "3"), ("NODE_RANK", "0"), ("MASTER_ADDR", "host0")):
        monkeypatch.setenv(name, value)
    composed, _ = training.dry_run(RECIPE, ["trainer.nnodes=2"])
    assert OmegaConf.create(composed).trainer.nnodes == 2


def test_a_cluster_that_runs_keeps_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    composed, _ = training.dry_run(RECIPE, ["ray_kwargs.ray_init.num_cpus=4"])
    ray_init: Any = OmegaConf.create(composed).ray_kwargs.ray_init
    assert ray_init.num_cpus is None
    assert ray_init.runtime_env.env_vars.VERL_PLATFORM == "cpu"  # its nodes have not been told


def test_what_a_ray_job_was_told_is_not_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"VERL_PLATFORM": "cpu"}}}')
    composed, _ = training.dry_run(RECIPE)
    told = OmegaConf.create(composed).ray_kwargs.ray_init.runtime_env.env_vars
    assert "VERL_PLATFORM" not in told
    assert told.OMP_NUM_THREADS == "1"


def test_the_tiny_model_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": training.TINY_MODEL}}})
    training._make_tiny_model(config)
    (tmp_path / training.TINY_MODEL).mkdir(parents=True)
    (tmp_path / training.TINY_MODEL / "config.json").touch()
    training._make_tiny_model(config)
    config.actor_rollout_ref.model.path = "Qwen/Qwen2.5-3B-Instruct"
    training._make_tiny_model(config)
    assert [command[-1] for command in commands] == [training.TINY_MODEL]
