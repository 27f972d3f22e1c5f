"""Arguments that several commands share, with their shell completion, and functions that print a command's result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from agent_rl.errors import ConfigError

MODEL = "actor_rollout_ref.model.path"

Json = Annotated[bool, typer.Option("--json", help="Print JSON")]
"""The `as_json` option of every command that prints a result; the command's help lists the JSON keys."""

stdout: ContextVar[TextIO | None] = ContextVar("stdout", default=None)
"""The stream for the result of a command with `--json`; all other output is written to stderr."""


def print_json(result: Any) -> None:
    """Print a command's result as JSON, because the user passed `--json`."""
    text = json.dumps(result, indent=2, ensure_ascii=False, default=str)
    print(text, file=stdout.get() or sys.stdout, flush=True)


def print_result(result: Any, as_json: bool, *lines: object) -> None:
    """Print a command's result: as JSON if the user passed `--json`, otherwise as the given lines and tables."""
    if as_json:
        return print_json(result)
    from rich.console import Console

    for line in lines:
        if hasattr(line, "__rich_console__"):
            Console().print(line)
        else:
            print(line, flush=True)


def json_object(key: str, text: str) -> dict[str, Any]:
    """Parse an argument that is a JSON object.

    Raises:
        ConfigError: the text is not a JSON object; the error names the argument.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(key, f"this is not JSON ({error}): {text}", """Write '{"name": value}'""") from error
    if not isinstance(value, dict):
        raise ConfigError(key, f"expected a JSON object, got {text}", """Write '{"name": value}'""")
    return value


def with_additions(task: str, data: Path | None, reward: Sequence[str] | None) -> str:
    """Return a TRL file's target, with the values of --data and --reward appended to it."""
    from agent_rl.environments.trl import ADDED

    return ADDED.join([task, *(reward or ()), *([] if data is None else [str(data)])])


def keys_with_model(recipe: str, overrides: Sequence[str] | None, model: str | None) -> list[str]:
    """Return the overrides plus the model; on a CPU, a task trains this model instead of starting from a tiny one."""
    from agent_rl.cpu import switch as cpu
    from agent_rl.launch.command import quoted
    from agent_rl.launch.task import is_task

    keys = [*([] if model is None else [f"{MODEL}={quoted(model)}"]), *(overrides or ())]
    return ["size=own_model"] * (names_a_model(keys) and is_task(recipe) and cpu.is_selected()) + keys


def names_a_model(keys: Sequence[str]) -> bool:
    """Whether an override sets the model."""
    return any(key.partition("=")[0].lstrip("+") == MODEL for key in keys)


def recipe_names(incomplete: str) -> list[str]:
    """Return the names of the recipes in the package, for shell completion."""
    from agent_rl.launch.recipes import described

    return [name for name in described() if name.startswith(incomplete)]


def agent_names(incomplete: str) -> list[str]:
    """Return the names of the agents in the package, for shell completion."""
    from agent_rl.agents.registry import agent_names

    return [name for name in agent_names() if name.startswith(incomplete)]


Recipe = Annotated[
    str,
    typer.Argument(
        help="Folder with config.yaml, or a recipe name, as listed by `agent-rl recipes`", autocompletion=recipe_names
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Hydra overrides of verl's or agent_rl's keys, or of config groups"),
]
Model = Annotated[
    str | None, typer.Option(help="Model folder or name on the Hub; short for actor_rollout_ref.model.path")
]
Data = Annotated[Path | None, typer.Option(help="For a TRL file: file with rows to use instead of its train_dataset")]
RewardFunctions = Annotated[
    list[str] | None,
    typer.Option("--reward", help="For a TRL file: reward function file.py:name; may be repeated"),
]
AgentName = Annotated[str, typer.Option("--agent", help="Agent for rows that name none", autocompletion=agent_names)]
Script = Annotated[str | None, typer.Option(help="Training script that registers your agents")]
Tools = Annotated[str | None, typer.Option(help="YAML file with the tools")]
Endpoint = Annotated[str | None, typer.Option(help="Address of the server, for example http://127.0.0.1:8000")]
