"""`agent-rl train`: check a recipe's configuration, then start its trainer here, on several nodes, or in a cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_rl.backend import cpu
from agent_rl.launch import resolution
from agent_rl.launch.command import trainer_command
from agent_rl.launch.composition import compose

__all__ = ["dry_run", "train"]

TINY_MODEL = "outputs/tiny_model"
"""The model that the recipes' sizes for a CPU name; no hub has it."""


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
        ClusterError: when the nodes do not come together.
    """
    from agent_rl.launch import cluster

    nodes = cluster.Nodes.from_environment()
    config, overrides = _composed(recipe, overrides, nodes)
    if problems := resolution.problems(config):
        raise problems[0]
    if nodes is not None and nodes.rank > 0:
        return cluster.run_worker(nodes, cluster.node_options(config, head=False), nodes_timeout_s)
    _make_tiny_model(config)
    command = _command(recipe, overrides, script, nodes)
    if nodes is not None:
        return cluster.run_head(nodes, command, cluster.node_options(config, head=True), nodes_timeout_s)
    sys.stdout.flush()
    os.execv(command[0], command)


def dry_run(recipe: str, overrides: Sequence[str] = (), script: str | None = None) -> tuple[str, list[str]]:
    """What `train` would do, and does not.

    Returns:
        The composed configuration as YAML, and notes: what is missing in it, and the trainer's command line.

    Raises:
        ConfigError: for a key that verl does not know, and whatever else cannot be composed.
    """
    from agent_rl.launch import cluster

    nodes = cluster.Nodes.from_environment()
    config, overrides = _composed(recipe, overrides, nodes)
    notes = [f"error: {problem}" for problem in resolution.problems(config)]
    command = _command(recipe, overrides, script, nodes, for_this_machine=False)
    return resolution.to_yaml(config), [*notes, shlex.join(command)]


def _composed(recipe: str, overrides: Sequence[str], nodes: Any) -> tuple[Any, list[str]]:
    """The configuration, and the overrides that it was made with: those for the nodes, then the user's."""
    whole = [*([f"trainer.nnodes={nodes.count}"] if nodes else ()), *overrides]
    return compose(recipe, whole), whole


def _command(recipe: str, overrides: Sequence[str], script: str | None, nodes: Any, **how: bool) -> list[str]:
    if nodes is not None:
        os.environ["RAY_ADDRESS"] = nodes.address  # the trainer joins the head that this launcher starts
    return trainer_command(recipe, overrides, script, **how)


def _make_tiny_model(config: Any) -> None:
    """Make the model of a recipe's trial on a CPU, the first time."""
    wanted = cpu.is_selected() and str(config.actor_rollout_ref.model.path) == TINY_MODEL
    if wanted and not (Path(TINY_MODEL) / "config.json").exists():
        subprocess.run([sys.executable, "-m", "agent_rl.backend.tiny_model", "--out", TINY_MODEL], check=True)
