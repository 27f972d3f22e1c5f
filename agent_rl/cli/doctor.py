"""The `agent-rl doctor` command."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import (
    Data,
    Json,
    Model,
    Overrides,
    RewardFunctions,
    keys_with_model,
    print_json,
    recipe_names,
    with_additions,
)
from agent_rl.errors import ConfigError

app = typer.Typer(rich_help_panel="check", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Folder with config.yaml, or a recipe name; default: check only the machine and the installation",
            autocompletion=recipe_names,
        ),
    ] = None,
    overrides: Overrides = None,
    model: Model = None,
    data: Data = None,
    reward: RewardFunctions = None,
    script: Annotated[
        Path | None, typer.Option(help="Your entry point, as for train; the doctor tries the agents that it registers")
    ] = None,
    machine: Annotated[
        Path | None, typer.Option(help="File with facts about the run's machine, written by --save-machine")
    ] = None,
    save_machine: Annotated[
        Path | None, typer.Option(help="Write facts about this machine to this file, without checking anything")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also print the checks that found no problem")] = False,
    as_json: Json = False,
) -> None:
    r"""Find problems that would stop a run, before a GPU is used.

    The doctor prints problems, then warnings, each with a remedy. Exit code 1: the doctor found a problem.

    To check a run for another machine, first run --save-machine on that machine:

    \b
      agent-rl doctor --save-machine node.json
      agent-rl doctor RECIPE --machine node.json

    --json: `ok`, `findings` (each with `group`, `subject`, `status`, `text`, `remedy`).
    """
    from rich.console import Console

    from agent_rl.launch.doctor import table
    from agent_rl.launch.doctor.diagnosis import diagnose
    from agent_rl.launch.doctor.machine import Machine

    if save_machine is not None:
        save_machine.write_text(json.dumps(Machine(os.environ).to_dict(), indent=1) + "\n", encoding="utf-8")
        raise typer.Exit
    if recipe and "=" in recipe:
        raise ConfigError(recipe, "there is an override but no recipe", "Pass the recipe's folder first")
    if model is not None and not recipe:
        raise ConfigError("--model", "there is a model but no recipe", "Pass the recipe's folder first")
    recipe = recipe and with_additions(recipe, data, reward)
    keys = keys_with_model(recipe or "", overrides, model)
    facts = None if machine is None else Machine.from_file(machine)
    with Console(stderr=True).status("") as status, contextlib.redirect_stdout(sys.stderr):
        # stdout is reserved for the findings, so the output of tools and packages goes to stderr
        findings = diagnose(recipe, keys, script, status.update, facts)
    if as_json:
        print_json(table.to_dict(findings))
    else:
        table.show(findings, Console(), every)
    raise typer.Exit(table.has_problem(findings))
