"""The `agent-rl new` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result

app = typer.Typer(rich_help_panel="start", add_completion=False)


def _kinds(incomplete: str) -> list[str]:
    from agent_rl.launch.starting_points import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="Kind: task, tool, agent, reward or recipe", autocompletion=_kinds)],
    name: Annotated[str, typer.Argument(help="Name, for example unit_converter")],
    to: Annotated[Path | None, typer.Option(help="Folder to create; default: the name")] = None,
    as_json: Json = False,
) -> None:
    r"""Write a working task, tool, agent, reward or recipe: the code and a test.

    \b
      agent-rl new task unit_converter
      agent-rl new tool unit_converter
      agent-rl new agent terse --to agents/terse

    The new code trains on a CPU without changes; everything except a task trains for only two steps. The command prints
    what to run next.

    --json: `files`, `next` (a list of commands).
    """
    from agent_rl.errors import ConfigError, did_you_mean
    from agent_rl.launch.starting_points import KINDS, make_start

    if kind not in KINDS:
        raise ConfigError("KIND", f"unknown kind {kind!r}", did_you_mean(kind, KINDS))
    files, commands = make_start(kind, name, to or Path(name))
    print_result({"files": [str(path) for path in files], "next": commands}, as_json, *files, "", *commands)
