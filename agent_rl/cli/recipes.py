"""The command `agent-rl recipes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the recipes that come with the package: `agent-rl train NAME` trains one from any folder."""
    from agent_rl.launch.recipes import described

    if context.invoked_subcommand is None:
        known = described()
        width = max(map(len, known))
        for name, text in known.items():
            print(f"{name:{width}}  {text}")


@app.command()
def copy(
    name: Annotated[str, typer.Argument(help="Of a recipe that `agent-rl recipes` lists")],
    target: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="To be made; default: the name")] = None,
) -> None:
    """Copy a recipe with its tool file and its data script, to be changed."""
    from agent_rl.launch.recipes import copy_recipe

    folder = target or Path(name)
    for path in copy_recipe(name, folder):
        print(path)
    print(f"\nagent-rl train {folder if len(folder.parts) > 1 else f'./{folder}'}")
