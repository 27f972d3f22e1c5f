"""The `agent-rl view` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError

app = typer.Typer(rich_help_panel="look", add_completion=False)


@app.command()
def view(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|FILE...", help="Run or evaluation folders, or files; default: the newest run in outputs/"
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 means any free port")] = 8321,
    host: Annotated[
        str, typer.Option(help="Address to listen on; if other machines can reach it, a token is required")
    ] = "127.0.0.1",
    as_json: Json = False,
) -> None:
    r"""Look at what agents did: a table of trajectories, conversations, groups and comparisons.

    \b
      agent-rl view
      agent-rl view outputs/gsm8k_calculator
      agent-rl view outputs/eval/before outputs/eval/after

    The viewer reads traces of runs and evaluations, verl's rollout dumps (trainer.rollout_data_dir) and ATIF files,
    even while a run writes them. Ctrl-C stops the server.

    --json: `url` and the number of `trajectories`, printed once the pages can be opened.
    """
    import secrets

    try:
        from agent_rl.trajectory.viewer.app import serve
    except ImportError as error:
        raise ConfigError("agent-rl view", f"{error.name} is not installed", "Install agent-rl[service]") from error
    from agent_rl.trajectory.viewer.records import find_sources, newest_run

    def announce(url: str, count: int) -> None:
        line = f"{count:,} {'trajectory' if count == 1 else 'trajectories'}: {url}"
        print_result({"url": url, "trajectories": count}, as_json, line)

    token = None if host in ("127.0.0.1", "localhost", "::1") else secrets.token_urlsafe(16)
    serve(find_sources(places or [newest_run(Path("outputs"))]), host, port, token, announce)
