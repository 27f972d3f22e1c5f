"""The command `agent-rl why`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_json

__all__ = ["GROUP", "app"]

GROUP = "look"

app = typer.Typer(add_completion=False)


@app.command()
def why(
    run: Annotated[str | None, typer.Argument(help="Folder of a run; default: the newest in outputs/")] = None,
    as_json: Json = False,
) -> None:
    r"""Say what is wrong with a run, and what to change.

    \b
      agent-rl why outputs/gsm8k_calculator

    It knows the symptoms of docs/symptoms.md, from the first step that can show them. Exit code 1: there is a warning.

    --json: `run`, `status`, `step`, `time`, `error`, `warnings` (each with `text`, `remedy`, `symptom`).
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.markup import escape

    from agent_rl.trajectory.viewer.records import newest_run
    from agent_rl.trajectory.viewer.report import read_run

    found = read_run(run or newest_run(Path("outputs")))
    warnings = found.warnings
    if as_json:
        print_json({"run": str(found.path), **asdict(found.state), "warnings": [each._asdict() for each in warnings]})
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"[bold]{escape(found.name)}[/]: {found.state}")
        if found.state.error:
            console.print(escape(found.state.error), style="red")
        for each in warnings:
            console.print(f"\n[yellow]{escape(each.text)}[/]\n  {escape(each.remedy)}.")
        if not warnings:
            console.print("nothing stands out" if found.training else "there is no step to judge yet")
    if warnings:
        raise typer.Exit(1)
