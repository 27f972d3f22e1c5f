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

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "recipes/gsm8k_calculator")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that this process would have become."""
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, command: seen.append(command))
    monkeypatch.setattr(training, "_make_tiny_models", lambda config: None)
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


def test_settings_of_a_ray_job_are_not_passed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"VERL_PLATFORM": "cpu"}}}')
    composed, _ = training.dry_run(RECIPE)
    told = OmegaConf.create(composed).ray_kwargs.ray_init.runtime_env.env_vars
    assert "VERL_PLATFORM" not in told
    assert told.OMP_NUM_THREADS == "1"


def test_the_tiny_models_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": training.TINY_MODEL}}})
    training._make_tiny_models(config)
    (tmp_path / training.TINY_MODEL).mkdir(parents=True)
    (tmp_path / training.TINY_MODEL / "config.json").touch()
    training._make_tiny_models(config)
    config.actor_rollout_ref.model.path = "Qwen/Qwen2.5-3B-Instruct"
    training._make_tiny_models(config)
    assert [command[-3:] for command in commands] == [[training.TINY_MODEL, "--kind", "policy"]]
    config.agent_rl = {"reward": {"models": {"preference": {"path": training.TINY_CLASSIFIER}}}}
    training._make_tiny_models(config)
    assert commands[-1][-3:] == [training.TINY_CLASSIFIER, "--kind", "classifier"]


def shell(command: list[str], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    places = [*([str(path)] if path else []), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = {**os.environ, "PATH": os.pathsep.join(places), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=100)


def test_run_sh_passes_everything_on() -> None:
    done = shell(["bash", f"{RECIPE}/run.sh", "--dry-run", "trainer.total_epochs=7"])
    assert OmegaConf.create(done.stdout).trainer.total_epochs == 7, done.stderr
    assert "Several nodes" in shell(["bash", f"{RECIPE}/run.sh", "--help"]).stdout


def test_the_slurm_script_runs_the_same_command_on_every_node(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\n[ -n "$RAY_AUTH_TOKEN" ] && shift && SLURM_NNODES=2 SLURM_NODEID=1 "$@"')
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho host7\n")
    (tmp_path / "scontrol").chmod(0o755)
    command = ["bash", "recipes/slurm.sbatch", "gsm8k_calculator", "trainer.total_epochs=7", "--dry-run"]
    done = shell(["env", "SLURM_JOB_NODELIST=host[7-8]", *command], tmp_path)
    trainer = OmegaConf.create(done.stdout).trainer
    assert (trainer.total_epochs, trainer.nnodes) == (7, 2), done.stderr


@pytest.mark.trainer
def test_the_runtime_environment_is_one_that_ray_takes_and_holds_no_key() -> None:
    from ray.runtime_env import RuntimeEnv

    text = (ROOT / "recipes/runtime_env.yaml").read_text()
    written = OmegaConf.to_container(OmegaConf.create(text))
    RuntimeEnv(**{**written, "working_dir": None})  # Ray's own check; the folder is uploaded by `ray job submit`
    assert written["env_vars"] == {}
