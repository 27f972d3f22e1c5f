"""Starting verl's trainer for a recipe: one command line and one environment, on a GPU node and on a CPU.

A recipe is a folder with `config.yaml`, which starts from verl's own configuration, and optionally `cpu.yaml`, which holds
what is smaller on a CPU. With `VERL_PLATFORM=cpu` the CPU profile and `cpu.yaml` are laid over the recipe; what the user
writes on the command line wins over everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_rl.backend import cpu
from agent_rl.errors import ConfigError

__all__ = ["trainer_command"]


def trainer_command(recipe: str | os.PathLike[str], overrides: Sequence[str] = ()) -> list[str]:
    """The command that trains a recipe, to be run or exec'ed from the folder that relative paths refer to.

    Args:
        recipe: a folder with `config.yaml`.
        overrides: hydra overrides, `key=value`.

    Raises:
        ConfigError: when the folder is not a recipe, an override is not of the form `key=value`, or there is no accelerator
            and the CPU was not chosen.
    """
    folder = Path(recipe).resolve()
    if not (folder / "config.yaml").is_file():
        raise ConfigError(str(recipe), "there is no config.yaml", "Give a recipe's folder, for example recipes/quickstart")
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise ConfigError(override, "not a hydra override", "Write key=value, or ~key to remove one")
    if not (cpu.is_selected() or _has_accelerator() or os.environ.get("RAY_ADDRESS")):
        raise ConfigError("VERL_PLATFORM", "there is no accelerator on this machine", "Set VERL_PLATFORM=cpu to use the CPU")
    groups = []
    if cpu.is_selected():
        groups.append("+platform=cpu")
        if (folder / "cpu.yaml").is_file():
            groups.append("+cpu@_global_=cpu")
    searchpath = f"hydra.searchpath=[pkg://verl.trainer.config,file://{cpu.CONFIG_DIR}]"
    return [
        sys.executable,
        "-m",
        "verl.trainer.main_ppo",
        "--config-path",
        str(folder),
        "--config-name",
        "config",
        searchpath,
        *groups,
        *overrides,
    ]


def _has_accelerator() -> bool:
    """Whether a device file of an NVIDIA GPU, an AMD GPU or an Ascend NPU exists; without one verl would wait for ever."""
    return any(any(Path("/dev").glob(pattern)) for pattern in ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dxg"))
