"""`agent-rl train`: checks a recipe's configuration, then starts the trainer locally, on nodes or in a cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agent_rl.agents.registry import agent_names
from agent_rl.cpu import switch as cpu
from agent_rl.cpu.profile import CPUProfile, profile_of
from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes, head, node_options, run_worker
from agent_rl.launch.command import (
    JOINING,
    has_accelerator,
    quoted,
    require_device,
    rewrite,
    trainer_command,
)
from agent_rl.launch.composition import compose_words, problems, resolved, verl_defaults
from agent_rl.launch.display import Display
from agent_rl.launch.environment import gpu_environment, joins_ray, require_home, temporary_files
from agent_rl.launch.process import logger_environment, run_trainer
from agent_rl.launch.recipes import model_remedy, rows_remedy
from agent_rl.launch.retraining import differences
from agent_rl.launch.run_folder import RunFolder
from agent_rl.launch.stopping import Aborted, StoppedRun, StopRequest
from agent_rl.preflight import rows  # noqa: F401 - its checks register themselves
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import check, refuse
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.old_keys import argument_keys
from agent_rl.trajectory.run_files import leaves
from agent_rl.verl_adapter.checkpoints import model_folder, names_a_folder, policy_shards
from agent_rl.verl_adapter.recorded import KEY

MODEL, DUMPS = "actor_rollout_ref.model.path", "trainer.rollout_data_dir"
STORAGE_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
WORKERS = ("actor_rollout_ref.rollout.agent.num_workers", "reward.num_workers", STORAGE_UNITS)
"""Keys that set process counts for the whole run, regardless of the number of nodes."""
READ_ROWS = 200
"""Number of rows that are read from each file before anything is started."""
TINY_MODEL = "outputs/tiny_model"
"""The policy of the recipes' CPU sizes, which is not on the Hub."""
TINY_CLASSIFIER = "outputs/tiny_classifier"
"""The reward model of the recipes' CPU sizes, which is not on the Hub."""


def train(
    recipe: str,
    overrides: Sequence[str] = (),
    script: str | None = None,
    *,
    nodes_timeout_s: float = 600,
    display: Display | None = None,
) -> StoppedRun | None:
    """Train a recipe in the run's folder (see `run_folder`) until the run ends or is asked to stop.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides, `key=value`.
        script: the user's entry point, which replaces verl's.
        nodes_timeout_s: if there are several nodes, seconds within which all must have joined.
        display: shows the run; if None, `agent_rl.run.progress` chooses the display.

    Returns:
        The last step and checkpoint if the run has ended early on request, otherwise None.

    Raises:
        ConfigError: the configuration cannot be trained; raised before anything is started.
        ClusterError: nodes did not join in time.
        TrainerError: the trainer failed.
        Aborted: a second signal arrived, or the first signal arrived before the first step.
    """
    stopping = StopRequest()
    with stopping.on_signals():
        nodes = Nodes.from_environment()
        config, words = composed(recipe, overrides, nodes)
        if errors := problems(config):
            raise errors[0]
        os.environ.update(_variables())  # Ray and every process of the run inherit these variables
        require_home()
        if nodes is not None and nodes.rank > 0:
            run_worker(nodes, node_options(config, head=False), nodes_timeout_s, stopping)
            return None
        if nodes is None:
            require_device()
        own = None if script is None else Path(script)
        refuse("launch", RunCase(config=config, recipe=recipe, overrides=overrides, script=own, most_rows=READ_ROWS))
        _make_tiny_models(config)
        display = display or Display(AgentRLSettings.from_config(config).run.progress)
        merged = _merged_checkpoint(config, display)
        with RunFolder(config, _user_command(), script) as run:
            if place := OmegaConf.select(config, KEY):
                run.notes += differences(place, run.record)
            words += [*_run_overrides(config, run.path, words), *merged]
            if nodes is not None or joins_ray():  # the processes of a running cluster do not inherit this environment
                variables = logger_environment(run.path).items()
                words += [f"++ray_kwargs.ray_init.runtime_env.env_vars.{name}={quoted(at)}" for name, at in variables]
            command = trainer_command(recipe, words, script)
            run.stopped = _run(run, config, command, nodes, nodes_timeout_s, display, stopping)
        return run.stopped


def _run(
    run: RunFolder,
    config: DictConfig,
    command: list[str],
    nodes: Nodes | None,
    nodes_timeout_s: float,
    display: Display,
    stopping: StopRequest,
) -> StoppedRun | None:
    """Start the trainer, on this machine or on the head of several nodes, and show the run until it ends."""
    stopping.begin(run.path)
    stopping.can_wait = lambda: display.progress.is_training
    stopping.on_abort = display.aborting
    display.begin(run.path, run.notes, resolved(config))
    try:
        with ExitStack() as stack:
            if cpu.is_selected():
                stack.enter_context(_profile(config).in_environment())
            environ: Mapping[str, str] = os.environ
            check: Callable[[], None] | None = None
            if nodes is not None:
                options = node_options(config, head=True)
                environ, check = stack.enter_context(head(nodes, options, nodes_timeout_s))

            def watch() -> None:
                if check is not None:
                    check()
                display.tick(stopping.asked)

            stopped = run_trainer(
                command,
                run.path,
                on_metrics=display.step,
                on_output=display.line,
                environ=environ,
                watch=watch,
                stopping=stopping,
                checkpoints=config.trainer.default_local_dir,
            )
        display.end(stopped)
    except Aborted as error:
        display.aborted(error.by)
        raise
    finally:
        display.close()
    return stopped


def dry_run(recipe: str, overrides: Sequence[str] = (), script: str | None = None) -> tuple[str, list[str]]:
    """Compose the run that `train` would start, without starting it.

    Returns:
        The composed configuration as YAML, and notes (its errors, and the trainer's command line with its environment
        variables).

    Raises:
        ConfigError: verl does not define a key, or composition fails in another way.
    """
    config, words = composed(recipe, overrides, Nodes.from_environment())
    command = trainer_command(recipe, words, script)
    notes = [f"error: {problem}" for problem in problems(config)]
    if variables := _variables():
        command = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
    return OmegaConf.to_yaml(OmegaConf.create(resolved(config))), [*notes, shlex.join(command)]


def _variables() -> dict[str, str]:
    """Return the environment variables that a run needs and that are not set yet."""
    if cpu.is_selected():
        return {**temporary_files(), **(cpu.NO_GPUS if has_accelerator() else {})}
    return {**temporary_files(), **gpu_environment()}


def composed(recipe: str, overrides: Sequence[str], nodes: Nodes | None) -> tuple[DictConfig, list[str]]:
    """Compose the configuration; also return the words from which the trainer composes it again.

    The user's `trainer.nnodes` overrides the number of nodes in the environment, and the user's keys override keys that
    depend on the machine. These keys are left as they are if the configuration has `problems`.

    Raises:
        ConfigError: the configuration cannot be composed.
    """
    words = rewrite(overrides if nodes is None else [f"trainer.nnodes={nodes.count}", *overrides])
    config = compose_words(recipe, words)
    keys, machine_keys = argument_keys(words), dict[str, Any]()
    if not problems(config):
        machine_keys = {**(_profile(config).overrides() if cpu.is_selected() else {}), **worker_counts(config)}
    for key, value in machine_keys.items():
        if key not in keys:
            OmegaConf.update(config, key, value)
            words.append(f"{key}={value}")
    return config, [*words, *(JOINING if nodes is not None else ())]


def _profile(config: DictConfig) -> CPUProfile:
    """Return the CPU profile of a run."""
    alone = OmegaConf.select(config, "trainer.v1.trainer_mode") in (None, "sync")
    processes = config.trainer.n_gpus_per_node
    return profile_of(str(config.actor_rollout_ref.model.path), alone, processes=processes)


def _user_command() -> list[str]:
    """Return the command line of this process, without the interpreter if the command is `agent-rl`."""
    words = sys.orig_argv
    return words[1:] if len(words) > 1 and Path(words[1]).name == "agent-rl" else words


@check("data", "rows", at=("launch", "doctor"))
def rows_are_there(case: RunCase) -> Iterator[ConfigError]:
    """The row files exist; otherwise a worker would fail after a minute."""
    for key in ("data.train_files", "data.val_files"):
        paths = case.get(key, [])
        for path in dict.fromkeys([paths] if isinstance(paths, str) else paths):
            file = case.folder / Path(path).expanduser()
            if "://" not in path and not file.is_file():
                problem = f"{path} is a folder, but a file is needed" if file.is_dir() else f"there is no {path}"
                yield ConfigError(key, problem, rows_remedy(path, case))


@check("configuration", "model", at=("launch", "doctor"))
def models_are_there(case: RunCase) -> Iterator[ConfigError]:
    """Each model whose name can only be a folder exists; otherwise, verl would search the Hub for it."""
    models = {f"agent_rl.reward.models.{name}.path": model.path for name, model in case.settings.reward.models.items()}
    if case.get("reward.reward_model.enable"):
        models["reward.reward_model.model_path"] = case.get("reward.reward_model.model_path", "")
    for key, path in {MODEL: str(case.get(MODEL)), **models}.items():
        is_made = case.on_cpu and path in (TINY_MODEL, TINY_CLASSIFIER)
        if names_a_folder(path) and not is_made and not (case.folder / Path(path).expanduser()).exists():
            remedy = model_remedy(path, case) if key == MODEL else "Correct the path, or use a model on the Hub"
            yield ConfigError(key, f"there is no {path}", remedy)


def _merged_checkpoint(config: DictConfig, display: Display) -> list[str]:
    """If `model.path` is a training checkpoint, merge it, and return the override with the merged model."""
    path = str(config.actor_rollout_ref.model.path)
    if policy_shards(Path(path).expanduser()) is None or (Path(path).expanduser() / "config.json").is_file():
        return []
    display.note(f"model: merging the checkpoint {path}, once")
    return [f"{MODEL}={quoted(model_folder(path, MODEL).absolute())}"]


def _run_overrides(config: DictConfig, folder: Path, words: Sequence[str]) -> list[str]:
    """Return overrides with absolute paths, valid on all nodes, that put all output into the run's folder.

    verl expands no `~`: it would look for the model `~/m` on the Hub, and save checkpoints in a folder named `~`.
    """
    overrides, keys = [f"++agent_rl.run.folder={quoted(folder)}"], argument_keys(words)
    for key, value in leaves(resolved(config)):
        if str(value).startswith("~/") and not key.startswith("agent_rl.gateway."):  # a shell reads the command
            overrides.append(f"++{key}={quoted(Path(value).expanduser())}")
    if place := OmegaConf.select(config, KEY):
        overrides.append(f"++{KEY}={quoted(Path(place).expanduser().absolute())}")
    if "hydra.run.dir" not in keys:
        overrides.append(f"hydra.run.dir={quoted(folder / 'hydra')}")
    if DUMPS not in keys and OmegaConf.select(config, DUMPS) is None and not _is_traced(config):
        overrides.append(f"{DUMPS}={quoted(folder / 'rollouts')}")
    logger = config.trainer.logger
    loggers = [logger] if isinstance(logger, str) else list(logger or [])
    if "file" not in loggers:  # the display reads the log of the `file` logger
        overrides.append(f"trainer.logger=[{','.join([*loggers, 'file'])}]")
    return overrides


def _is_traced(config: DictConfig) -> bool:
    """Whether the trace contains the run's samples; verl's agent loops write no trace."""
    agent = config.actor_rollout_ref.rollout.agent.default_agent_loop
    return OmegaConf.select(config, "agent_rl.trace.path") is not None and agent in agent_names()


def worker_counts(config: DictConfig) -> dict[str, int]:
    """Return total worker counts that give each node the same number of workers as a single node."""
    counts = {key: OmegaConf.select(config, key) for key in WORKERS} if config.trainer.nnodes > 1 else {}
    return {
        key: count * config.trainer.nnodes
        for key, count in counts.items()
        if count == OmegaConf.select(verl_defaults(), key)
    }


def _make_tiny_models(config: DictConfig) -> None:
    """On a CPU, make the tiny models that the recipe refers to, unless they exist."""
    if not cpu.is_selected():
        return
    served = OmegaConf.select(config, "agent_rl.reward.models") or {}
    models = {str(config.actor_rollout_ref.model.path), *(str(model.path) for model in served.values())}
    for path, kind in ((TINY_MODEL, "policy"), (TINY_CLASSIFIER, "classifier")):
        if path in models and not (Path(path) / "config.json").exists():
            command = [sys.executable, "-m", "agent_rl.cpu.tiny_model", "--out", path, "--kind", kind]
            subprocess.run(command, check=True)
