"""The `agent-rl export` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result

app = typer.Typer(rich_help_panel="train", add_completion=False)


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="Folder of a run (for its newest checkpoint), a checkpoint or a model")],
    to: Annotated[Path, typer.Option(help="Folder to create")],
    as_json: Json = False,
) -> None:
    r"""Write a trained policy as a model that servers can load.

    \b
      agent-rl export outputs/gsm8k_calculator --to my_model
      agent-rl export outputs/mine/checkpoints/global_step_100 --to my_model

    The folder contains the weights, tokenizer, chat template, and a generation config with the sampling settings.

    --json: `folder`, and `serve`, a list of commands.
    """
    from agent_rl.evaluation.exported_model import export_model

    commands = export_model(run, to)
    lines = [f"{to}: serve it with one of these commands", *(f"  {command}" for command in commands)]
    print_result({"folder": str(to), "serve": commands}, as_json, *lines)
