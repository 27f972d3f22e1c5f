"""The commands `agent-rl tools list`, `check`, `call`, `expand` and `from-openapi`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_rl.cli._arguments import json_object

if TYPE_CHECKING:
    from agent_rl.tools import ToolSpec

__all__ = ["app"]

app = typer.Typer(help="Commands for writing tool files.", no_args_is_help=True, add_completion=False)


@app.command("list")
def list_tools() -> None:
    """The built-in tools."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from agent_rl.tools.inspection import built_in

    table = Table("name", "kind", "what it is", box=None, pad_edge=False, header_style="bold")
    for row in built_in():
        table.add_row(*map(escape, row))
    Console().print(table)


@app.command()
def check(files: Annotated[list[Path], typer.Argument(help="Tool files, as tool_config_path would name them")]) -> None:
    """Read tool files as training would, and show their tools."""
    from agent_rl.tools.inspection import signature

    for file in files:
        specs = _specs(file)
        print(f"{file}: {len(specs)} tool{'s' if len(specs) > 1 else ''}")
        for spec in specs:
            print(f"  {signature(spec)}")


@app.command()
def call(
    file: Annotated[Path, typer.Argument(help="The tool file")],
    name: Annotated[str, typer.Argument(help="Which of its tools")],
    arguments: Annotated[str, typer.Argument(help="The arguments, a JSON object")] = "{}",
    create_kwargs: Annotated[str, typer.Option(help="What a row would give the tool, a JSON object")] = "{}",
) -> None:
    """Call one tool as the policy would: its text on stdout, status and seconds on stderr."""
    from agent_rl.tools import inspection
    from agent_rl.trajectory import ToolStatus

    given = json_object("ARGUMENTS", arguments), json_object("--create-kwargs", create_kwargs)
    result = inspection.call(_specs(file), name, *given)
    print(result.text)
    reward = "" if result.reward is None else f", reward {result.reward:g}"
    print(f"[{result.status.value}, {result.seconds:.3f} s{reward}]", file=sys.stderr)
    raise typer.Exit(result.status is not ToolStatus.OK)


@app.command()
def expand(file: Annotated[Path, typer.Argument(help="The tool file")]) -> None:
    """Print the file with every tool's schema as the policy sees it; loading the result needs no server."""
    from agent_rl.tools import load_tools
    from agent_rl.tools.inspection import expand

    print(expand(load_tools(file)), end="")


@app.command("from-openapi")
def from_openapi(
    spec: Annotated[Path, typer.Argument(help="An OpenAPI 3 document, JSON or YAML")],
    base_url: Annotated[str | None, typer.Option(help="Address of the service, if not the document's")] = None,
    include: Annotated[list[str] | None, typer.Option(help="Only these operations; wildcards, may be repeated")] = None,
) -> None:
    """Write the tool file of an HTTP API from its OpenAPI document, to stdout."""
    from agent_rl.tools import openapi

    conversion = openapi.from_openapi(openapi.read_openapi(spec), base_url=base_url, include=include or None)
    print(openapi.to_yaml(conversion), end="")


def _specs(file: Path) -> list[ToolSpec]:
    from agent_rl.verl_adapter.tool_files import load_specs

    return load_specs(str(file))
