"""The `agent-rl report` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError

app = typer.Typer(rich_help_panel="look", add_completion=False)


@app.command()
def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, outputs/<experiment>")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Page to write; default: report.html in the first run's folder"),
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Folder for a PNG file of each chart")] = None,
    as_json: Json = False,
) -> None:
    r"""Write one page about a run: curves, warnings, results before and after, trajectories, configuration, versions.

    \b
      agent-rl report outputs/gsm8k_calculator
      agent-rl report outputs/first outputs/second -o comparison.html
      agent-rl report outputs/gsm8k_calculator --png docs/pictures

    With several runs, the page compares the runs. The page needs neither other files nor a network connection.

    --json: `page` and, with --png, `charts` (paths of files), `runs` (each with command, versions, hashes of files, and
    metrics as pairs of step and value).
    """
    try:
        from agent_rl.trajectory.viewer.report import charts, facts, read_run
        from agent_rl.trajectory.viewer.report import report as page
    except ImportError as error:
        raise ConfigError("agent-rl report", f"{error.name} is not installed", "Install agent-rl[service]") from error
    target = out or Path(runs[0]) / "report.html"
    reports = [read_run(run) for run in runs]
    text, files = page(reports), []
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
        for chart in charts(reports):
            files.append(png / f"{chart.name}.png")
            chart.write_png(files[-1])
    result = {"page": str(target), "charts": [str(file) for file in files], "runs": [facts(run) for run in reports]}
    print_result(result, as_json, target, *files)
