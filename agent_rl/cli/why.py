"""The `agent-rl why` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_json

app = typer.Typer(rich_help_panel="look", add_completion=False)


@app.command()
def why(
    run: Annotated[str | None, typer.Argument(help="A run's folder; default: the newest in outputs/")] = None,
    as_json: Json = False,
) -> None:
    r"""Report what is wrong with a run, and what to change.

    \b
      agent-rl why outputs/gsm8k_calculator

    The command recognizes each symptom in docs/symptoms.md as soon as the run has enough steps. Exit code 1: the run
    has a warning.

    --json: `run`, `status`, `step`, `time`, `error`, `warnings` (each with `text`, `remedy`, `symptom`).
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.markup import escape

    from agent_rl.trajectory.viewer.records import newest_run
    from agent_rl.trajectory.viewer.report import read_run

    report = read_run(run or newest_run(Path("outputs")))
    warnings = report.warnings
    if as_json:
        print_json({"run": str(report.path), **asdict(report.state), "warnings": [item._asdict() for item in warnings]})
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"[bold]{escape(report.name)}[/]: {report.state}")
        if report.state.error:
            console.print(escape(report.state.error), style="red")
        for warning in warnings:
            console.print(f"\n[yellow]{escape(warning.text)}[/]\n  {escape(warning.remedy)}.")
        if not warnings:
            console.print("nothing stands out" if report.training else "there is no step to judge yet")
    if warnings:
        raise typer.Exit(1)
