"""Builds the command line that trains a recipe, for this machine's accelerator and Ray cluster."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_rl.cpu import switch as cpu
from agent_rl.errors import ConfigError
from agent_rl.launch.environment import gpu_environment, joins_ray
from agent_rl.launch.recipes import found_files, recipe_folder
from agent_rl.settings.old_keys import argument_keys, change_arguments, is_free, rows, tell

SIZES = ("num_cpus", "num_gpus", "object_store_memory", "resources")
"""Keys of `ray_kwargs.ray_init` that Ray rejects in a process that joins a cluster."""

JOINING = tuple(f"++ray_kwargs.ray_init.{key}=null" for key in SIZES)
"""Overrides that remove the `SIZES` for a trainer that joins a Ray cluster, whose nodes have already set their own."""


def has_accelerator() -> bool:
    """Whether there is a device file for an NVIDIA or AMD GPU or an Ascend NPU; without one, verl would hang."""
    return any(any(Path("/dev").glob(pattern)) for pattern in ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dxg"))


def require_device() -> None:
    """Refuse to start a trainer that would wait forever.

    Raises:
        ConfigError: there is no accelerator and the CPU was not chosen.
    """
    if not (cpu.is_selected() or has_accelerator() or joins_ray()):
        raise ConfigError(
            "VERL_PLATFORM", "there is no accelerator on this machine", "Set VERL_PLATFORM=cpu to use the CPU"
        )


def quoted(value: object) -> str:
    """Quote a value for a hydra override, so that hydra reads every character literally."""
    # hydra reads a backslash as an escape only if a quote follows
    text = re.sub(r"(\\*)('|\Z)", lambda end: end[1] * 2 + (end[2] and "\\'"), str(value))
    return f"'{text}'"


def rewrite(overrides: Sequence[str]) -> list[str]:
    """Return a run's overrides with old keys replaced by current ones; each change is printed.

    The launcher calls this function first; all later code, including the trainer's process, uses the returned words.

    Args:
        overrides: hydra overrides, `key=value`; environment variables from the table of old keys are added.

    Raises:
        ConfigError: a word is not of the form `key=value`, or has an old key that is rejected.
    """
    words, notes = change_arguments([*_environment(overrides), *overrides], "train")
    tell(notes)
    for word in words:
        if "=" not in word and not word.startswith("~"):
            raise ConfigError(word, "this is not a hydra override", "Write key=value, or ~key to remove a key")
    return words


def hydra_arguments(folder: Path, words: Sequence[str]) -> list[str]:
    """Return a run's overrides: the platform's groups, the recipe's file paths, `words`, and overrides to join Ray.

    Args:
        folder: the recipe's folder.
        words: the result of `rewrite`.
    """
    groups = []
    if cpu.is_selected():
        groups.append("+platform=cpu")
        if (folder / "size" / "cpu.yaml").is_file():
            groups.append("size=cpu")
    words = [*(f"{key}={quoted(path)}" for key, path in found_files(folder).items()), *words]
    # in sections that may contain any key, ++ makes hydra accept keys that the recipe does not list
    words = [f"++{word}" if is_free(word.partition("=")[0]) else word for word in words]
    words = [f"+{word}" if word.startswith("policy=") else word for word in words]  # overrides the recipe
    return [*groups, *words, *(_joining() if joins_ray() else ())]


def trainer_command(
    recipe: str | os.PathLike[str], words: Sequence[str] = (), script: str | os.PathLike[str] | None = None
) -> list[str]:
    """Return the command that trains a recipe; run it from the folder to which relative paths refer.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        words: the result of `rewrite`.
        script: the user's entry point, used instead of verl's; it registers loops and then calls
            `verl.trainer.main_ppo.main()`.

    Raises:
        ConfigError: there is no such recipe.
    """
    folder = recipe_folder(recipe)
    start = ("-m", "verl.trainer.main_ppo") if script is None else (str(script),)
    config = ("--config-path", str(folder), "--config-name", "config")
    return [sys.executable, *start, *config, *hydra_arguments(folder, words)]


def _environment(overrides: Sequence[str]) -> list[str]:
    """Return the environment variables in the table of old keys that are set and whose new key no override sets."""
    keys = argument_keys(overrides)
    names = [(row.old.removeprefix("$"), row.new) for row in rows() if row.old.startswith("$")]
    return [f"${name}={os.environ[name]}" for name, new in names if os.environ.get(name) and new not in keys]


def _joining() -> list[str]:
    """Return the overrides for joining a running cluster, whose processes do not inherit this environment."""
    overrides = list(JOINING)
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}
    job_variables = job.get("env_vars") or {}  # `ray job submit` sets these; Ray rejects a variable set twice
    if cpu.is_selected():
        variables = {"VERL_PLATFORM": "cpu", **cpu.child_environment()}
    else:  # the nodes need these variables even if this process already has them, but keep their own `PATH`
        variables = {**os.environ, **gpu_environment()}
        variables = {name: variables[name] for name in ("LD_LIBRARY_PATH", "CUDA_HOME") if variables.get(name)}
    for name, value in variables.items():
        if name not in job_variables:
            overrides.append(f"++ray_kwargs.ray_init.runtime_env.env_vars.{name}={quoted(value)}")
    return overrides
