"""`agent-rl train` up to the point where something is started; what is started is tested in tests/e2e."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agent_rl.cpu import profile
from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError
from agent_rl.launch import training
from agent_rl.launch.composition import compose
from tests.support.rows import sum_row

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "recipes/gsm8k_calculator")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, here: Path) -> list[list[str]]:
    """Command lines of trainers that would have been started."""
    seen: list[list[str]] = []
    monkeypatch.setattr(training, "run_trainer", lambda command, folder, **_: seen.append([str(folder), *command]))
    monkeypatch.setattr(training, "_make_tiny_models", lambda config: None)
    monkeypatch.setenv("HOME", str(here))
    (data := here / "data/gsm8k_multiturn_w_tool").mkdir(parents=True)
    for split in ("train", "test"):
        write_parquet([sum_row(split=split)], data / f"{split}.parquet")
    (here / "outputs/tiny_model").mkdir(parents=True)
    return seen


def composed(started: list[list[str]]) -> DictConfig:
    """The configuration of the trainer that would have been started."""
    (command,) = started
    return compose(RECIPE, command[command.index("size=cpu") + 1 :])


WORLD = "outputs/worlds/search_qa"


@pytest.mark.parametrize(
    ("recipe", "overrides", "missing", "message"),
    [
        (RECIPE, [], "data/gsm8k_multiturn_w_tool/test.parquet",
         r"data\.val_files: there is no .*Make the rows with: python .*multiturn_w_tool\.py;"),
        (RECIPE, ["actor_rollout_ref.model.path=models/mine/x"], "",
         r"model\.path: there is no models/mine/x\. .*tiny_model --out models/mine/x"),
        ("search_qa", ["trainer.total_epochs=2"], f"{WORLD}/train.parquet",
         r"there is no outputs/.*train\.parquet\. Make the rows with: agent-rl sft search_qa trainer\.total_epochs=2;"),
        ("search_qa", [], f"{WORLD}/model", r"there is no outputs/.*model\. Make the model with: agent-rl sft search"),
        (RECIPE, ["trainer.project_name=${nothing}"], "", "project_name: Interpolation key 'nothing' not found"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_named_before_anything_starts(
    recipe: str, overrides: list[str], missing: str, message: str, started: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / WORLD / "model").mkdir(parents=True)
    for split in ("train", "test"):
        (tmp_path / WORLD / f"{split}.parquet").touch()
    if missing:
        (tmp_path / missing).rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match=message):
        training.train(recipe, overrides)
    assert started == []
    assert not list(tmp_path.glob("outputs/*/run.json"))


def test_everything_that_a_run_writes_is_in_its_folder(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["/bin/python", "/bin/agent-rl", "train", "gsm8k_calculator"])
    training.train(RECIPE, ["trainer.total_epochs=1", "trainer.logger=[console]"])
    folder, *command = started[0]
    assert folder == str(tmp_path / "outputs/gsm8k_calculator")
    assert command[:3] == [sys.executable, "-m", "verl.trainer.main_ppo"]
    given = f"++agent_rl.run.folder='{folder}' hydra.run.dir='{folder}/hydra' trainer.logger=[console,file]".split()
    assert [word for word in command if word in given] == given
    config = composed(started)
    kept = config.trainer.default_local_dir, config.trainer.rollout_data_dir, config.agent_rl.trace.path
    assert kept == (f"{folder}/checkpoints", None, f"{folder}/trace.jsonl")
    run = json.loads((tmp_path / "outputs/gsm8k_calculator/run.json").read_text())
    assert run["command"] == ["/bin/agent-rl", "train", "gsm8k_calculator"]


@pytest.mark.parametrize(
    ("overrides", "is_added"),
    [
        ([], False),
        (["actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent"], True),
        (["agent_rl.trace.path=null", "trainer.rollout_data_dir=null"], False),
    ],
)
def test_verl_writes_dumps_where_the_trace_has_no_samples(
    started: list[list[str]], tmp_path: Path, overrides: list[str], is_added: bool
) -> None:
    training.train(RECIPE, overrides)
    word = f"trainer.rollout_data_dir='{tmp_path}/outputs/gsm8k_calculator/rollouts'"
    assert (word in started[0]) == is_added


def test_workers_grow_with_nodes_unless_the_user_gives_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM")
    keys = ("actor_rollout_ref.rollout.agent.num_workers", "reward.num_workers", training.STORAGE_UNITS)

    def workers(*overrides: str) -> list[int]:
        config = OmegaConf.create(training.dry_run(RECIPE, overrides)[0])
        return [OmegaConf.select(config, key) for key in keys]

    assert workers("trainer.nnodes=2", f"{keys[1]}=3") == [16, 3, 16]
    assert workers("trainer.nnodes=1") == [8, 8, 8]


@pytest.mark.parametrize("key", ["actor_rollout_ref.model.path", "trainer.nnodes", "trainer.n_gpus_per_node"])
def test_a_variable_that_is_not_set_is_reported_with_its_key(key: str) -> None:
    _, notes = training.dry_run(RECIPE, [f"{key}=${{oc.env:NOT_SET}}"])
    assert any(note.startswith(f"error: {key}: ") and "'NOT_SET' not found" in note for note in notes)


def test_a_large_model_is_computed_as_the_profile_says_unless_the_user_differs(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(profile, "processor_flags", lambda: frozenset({"avx512_bf16"}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    record = training.run_trainer
    monkeypatch.setattr(
        training, "run_trainer", lambda *a, **k: (threads.append(os.environ.get("OMP_NUM_THREADS")), record(*a, **k))[1]
    )
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(profile.LARGE)
    training.train(RECIPE, [f"actor_rollout_ref.model.path={tmp_path}", "actor_rollout_ref.rollout.dtype=float32"])
    config = composed(started).actor_rollout_ref
    assert config.rollout.dtype == "float32"
    assert config.actor.fsdp_config.mixed_precision.param_dtype == "bf16"
    assert threads == ["3"]


def test_a_cluster_that_runs_is_told_where_metrics_go(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    monkeypatch.delenv("TENSORBOARD_DIR", raising=False)
    training.train(RECIPE, ["ray_kwargs.ray_init.num_cpus=4"])
    ray_init: Any = composed(started).ray_kwargs.ray_init
    folder = tmp_path / "outputs/gsm8k_calculator"
    assert str(folder / "metrics.new.jsonl") == ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH
    assert str(folder / "tensorboard") == ray_init.runtime_env.env_vars.TENSORBOARD_DIR
    assert ray_init.runtime_env.env_vars.VERL_PLATFORM == "cpu"  # its nodes have not been told
    assert ray_init.num_cpus is None  # Ray refuses it from a driver that joins


def test_a_folder_with_spaces_and_commas_is_one_value(started: list[list[str]], tmp_path: Path) -> None:
    training.train(RECIPE, [f"agent_rl.run.folder='{tmp_path}/a, (b)'"])
    assert composed(started).trainer.default_local_dir == f"{tmp_path}/a, (b)/checkpoints"


def test_the_trainer_gets_paths_without_a_tilde(started: list[list[str]], here: Path) -> None:
    (here / "m").mkdir()
    training.train(RECIPE, ["actor_rollout_ref.model.path='~/m'", "trainer.default_local_dir='~/saved'"])
    config = composed(started)
    assert config.actor_rollout_ref.model.path == f"{here}/m"
    assert config.trainer.default_local_dir == f"{here}/saved"
    assert config.agent_rl.trace.path == f"{here}/outputs/gsm8k_calculator/trace.jsonl"


@pytest.mark.parametrize("first", ["first", "~/first"])
def test_a_checkpoint_is_merged_and_the_trainer_gets_the_model(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    (tmp_path / "first/global_step_3/actor/huggingface").mkdir(parents=True)
    (tmp_path / "first/latest_checkpointed_iteration.txt").write_text("3")
    merged: list[str] = []
    monkeypatch.setattr(training, "model_folder", lambda model, key: merged.append(model) or tmp_path / "merged")
    training.train(RECIPE, [f"actor_rollout_ref.model.path='{first}'"])
    assert merged == [first]
    assert composed(started).actor_rollout_ref.model.path == f"{tmp_path}/merged"


@pytest.mark.parametrize(("overrides", "nodes"), [([], 3), (["trainer.nnodes=2"], 2)])
def test_the_nodes_are_said_to_verl_unless_the_user_has(
    overrides: list[str], nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NNODES", "3"), ("NODE_RANK", "0"), ("MASTER_ADDR", "host0")):
        monkeypatch.setenv(name, value)
    text, notes = training.dry_run(RECIPE, overrides)
    assert OmegaConf.create(text).trainer.nnodes == nodes
    assert "++ray_kwargs.ray_init.num_gpus=null" in notes[-1]  # Ray refuses it from a driver that joins


def test_settings_of_a_ray_job_are_not_passed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host0:6379")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"VERL_PLATFORM": "cpu"}}}')
    text, _ = training.dry_run(RECIPE)
    told = OmegaConf.create(text).ray_kwargs.ray_init.runtime_env.env_vars
    assert "VERL_PLATFORM" not in told
    assert told.OMP_NUM_THREADS == "1"


def test_the_tiny_models_are_made_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": training.TINY_MODEL}}})
    training._make_tiny_models(config)
    (here / training.TINY_MODEL).mkdir(parents=True)
    (here / training.TINY_MODEL / "config.json").touch()
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
    assert "For several nodes" in shell(["bash", f"{RECIPE}/run.sh", "--help"]).stdout


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        (None, "error: no python is on PATH, and agent_rl needs Python 3.10"),
        ("Python 3.9.2", "error: Python 3.9.2 is on PATH, and agent_rl needs Python 3.10"),
        (sys.executable, "cannot import agent_rl and what it needs"),
    ],
)
def test_run_sh_without_a_usable_environment_says_so(tmp_path: Path, python: str | None, problem: str) -> None:
    """A copy of the folder without .venv, and a PATH with no python, an old one, or one without packages."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes", ignore=shutil.ignore_patterns("results"))
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("bash", "dirname"):
        (path / name).symlink_to(str(shutil.which(name)))
    if python is not None:
        (path / "python").write_text(
            f'#!{path}/bash\nexec {python} -S -E "$@"\n'
            if os.path.exists(python)
            else f"#!{path}/bash\n[ $1 = -V ] && echo {python} || exit 1\n"
        )
        (path / "python").chmod(0o755)
    run = ["bash", str(tmp_path / "recipes/quickstart/run.sh")]
    done = subprocess.run(run, env={"PATH": str(path)}, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr
    assert "make install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_slurm_script_runs_the_same_command_on_every_node(tmp_path: Path) -> None:
    script = '[ -n "$RAY_AUTH_TOKEN" ] && [ "$SRUN_CPUS_PER_TASK" = 96 ] && shift && SLURM_NNODES=2 SLURM_NODEID=1 "$@"'
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{script}")
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho host7\n")
    (tmp_path / "scontrol").chmod(0o755)
    command = ["bash", "recipes/slurm.sbatch", "gsm8k_calculator", "trainer.total_epochs=7", "--dry-run"]
    done = shell(["env", "SLURM_JOB_NODELIST=host[7-8]", "SLURM_CPUS_PER_TASK=96", *command], tmp_path)
    trainer = OmegaConf.create(done.stdout).trainer
    assert (trainer.total_epochs, trainer.nnodes) == (7, 2), done.stderr


@pytest.mark.trainer
def test_the_runtime_environment_is_one_that_ray_takes_and_holds_no_key() -> None:
    from ray.runtime_env import RuntimeEnv

    text = (ROOT / "recipes/runtime_env.yaml").read_text()
    written = OmegaConf.to_container(OmegaConf.create(text))
    RuntimeEnv(**{**written, "working_dir": None})  # Ray's own check; the folder is uploaded by `ray job submit`
    assert written["env_vars"] == {}
