"""`agent-rl train`: check a recipe's configuration, then start its trainer here, on several nodes, or in a cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from agent_rl.cpu import switch as cpu
from agent_rl.launch import resolution
from agent_rl.launch.cluster import Nodes, node_options, run_head, run_worker
from agent_rl.launch.command import JOINING, command_line, trainer_command
from agent_rl.launch.composition import compose

__all__ = ["dry_run", "train"]

TINY_MODEL = "outputs/tiny_model"
"""The policy in the recipes' sizes for a CPU; no hub has it."""
TINY_CLASSIFIER = "outputs/tiny_classifier"
"""The reward model in the recipes' sizes for a CPU; no hub has it."""


def train(
    recipe: str, overrides: Sequence[str] = (), script: str | None = None, *, nodes_timeout_s: float = 600
) -> int:
    """Train a recipe; on a single node this process becomes the trainer.

    Args:
        recipe: a folder with `config.yaml`.
        overrides: hydra overrides, `key=value`.
        script: the user's own entry point instead of verl's.
        nodes_timeout_s: seconds within which all of several nodes must have joined.

    Returns:
        The exit status of this node.

    Raises:
        ConfigError: for a configuration that cannot be trained, before anything is started.
        ClusterError: when nodes do not join in time.
    """
    nodes = Nodes.from_environment()
    config, command = _composed(recipe, overrides, script, nodes)
    if problems := resolution.problems(config):
        raise problems[0]
    if nodes is not None and nodes.rank > 0:
        return run_worker(nodes, node_options(config, head=False), nodes_timeout_s)
    if nodes is None:
        command = trainer_command(recipe, overrides, script)
    _make_tiny_models(config)
    if nodes is not None:
        return run_head(nodes, command, node_options(config, head=True), nodes_timeout_s)
    os.execv(command[0], command)


def dry_run(recipe: str, overrides: Sequence[str] = (), script: str | None = None) -> tuple[str, list[str]]:
    """Compose what `train` would run, without running it.

    Returns:
        The composed configuration as YAML, and notes: its errors, and the trainer's command line.

    Raises:
        ConfigError: for a key that verl does not know, and any other error of composition.
    """
    config, command = _composed(recipe, overrides, script, Nodes.from_environment())
    notes = [f"error: {problem}" for problem in resolution.problems(config)]
    return resolution.to_yaml(config), [*notes, shlex.join(command)]


def _composed(
    recipe: str, overrides: Sequence[str], script: str | None, nodes: Nodes | None
) -> tuple[DictConfig, list[str]]:
    """The configuration and the trainer's command line; a `trainer.nnodes` of the user wins over the nodes' number."""
    if nodes is None:
        return compose(recipe, overrides), command_line(recipe, overrides, script)
    overrides = [f"trainer.nnodes={nodes.count}", *overrides]
    return compose(recipe, overrides), command_line(recipe, [*overrides, *JOINING], script)


def _make_tiny_models(config: DictConfig) -> None:
    """On a CPU, make the tiny models that the recipe names, unless they exist."""
    if not cpu.is_selected():
        return
    served = OmegaConf.select(config, "agent_rl.reward.models") or {}
    named = {str(config.actor_rollout_ref.model.path), *(str(model.path) for model in served.values())}
    for path, kind in ((TINY_MODEL, "policy"), (TINY_CLASSIFIER, "classifier")):
        if path in named and not (Path(path) / "config.json").exists():
            command = [sys.executable, "-m", "agent_rl.cpu.tiny_model", "--out", path, "--kind", kind]
            subprocess.run(command, check=True)
