"""The `agent-rl recipes` command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result, recipe_names

app = typer.Typer(rich_help_panel="start", add_completion=False)


@app.callback(invoke_without_command=True)
def recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes that come with the package, or copy one.

    `agent-rl train NAME` trains a recipe from any folder.

    --json: `recipes` (one sentence about each recipe, by name).
    """
    from agent_rl.launch.recipes import described

    if context.invoked_subcommand is None:
        texts = described()
        width = max(map(len, texts))
        print_result({"recipes": texts}, as_json, *(f"{name:{width}}  {text}" for name, text in texts.items()))


@app.command()
def copy(
    name: Annotated[
        str, typer.Argument(help="Recipe name, as listed by `agent-rl recipes`", autocompletion=recipe_names)
    ],
    target: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="Folder to create; default: the name")] = None,
    as_json: Json = False,
) -> None:
    """Copy a recipe with its tool file and data script, so that you can change it.

    --json: `files`, `next` (a list of commands).
    """
    from agent_rl.launch.recipes import copy_recipe

    folder = target or Path(name)
    files = [str(path) for path in copy_recipe(name, folder)]
    command = shlex.join(["agent-rl", "train", str(folder) if len(folder.parts) > 1 else f"./{folder}"])
    print_result({"files": files, "next": [command]}, as_json, *files, "", command)
