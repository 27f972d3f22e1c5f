"""The `agent-rl tools` commands: `list`, `check`, `call` and `expand`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_rl.cli._arguments import Json, json_object, print_json, print_result

if TYPE_CHECKING:
    from agent_rl.tools import ToolSpec

app = typer.Typer(rich_help_panel="check", help="Check tool files and try their tools.", no_args_is_help=True)


@app.command("list")
def list_tools(as_json: Json = False) -> None:
    """List the built-in tools.

    --json: `tools` (each with `name`, `kind`, `text`).
    """
    from rich.markup import escape
    from rich.table import Table

    from agent_rl.tools.inspection import built_in

    table = Table("name", "kind", "what it is", box=None, pad_edge=False, header_style="bold")
    for row in built_in():
        table.add_row(*map(escape, row))
    print_result(
        {"tools": [dict(zip(("name", "kind", "text"), row, strict=True)) for row in built_in()]}, as_json, table
    )


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Tool files, as in tool_config_path")],
    as_json: Json = False,
) -> None:
    """Load tool files as training does, and show their tools.

    --json: `files` (for each file's path, the signatures of its tools by name).
    """
    from agent_rl.tools.inspection import signature

    signatures = {str(file): {spec.name: signature(spec) for spec in _specs(file)} for file in files}
    lines = []
    for file, tools in signatures.items():
        lines += [
            f"{file}: {len(tools)} tool{'s' if len(tools) > 1 else ''}",
            *(f"  {text}" for text in tools.values()),
        ]
    print_result({"files": signatures}, as_json, *lines)


@app.command()
def call(
    file: Annotated[Path, typer.Argument(help="Tool file")],
    name: Annotated[str, typer.Argument(help="Name of the tool")],
    arguments: Annotated[str, typer.Argument(help="Arguments of the call, as a JSON object")] = "{}",
    create_kwargs: Annotated[str, typer.Option(help="The tool's create_kwargs from a row, as a JSON object")] = "{}",
    as_json: Json = False,
) -> None:
    """Call one tool as the policy would; print the text to stdout, and the status and seconds to stderr.

    Exit code 1: the policy would see an error.

    --json: `text`, `status`, `seconds`, `reward`.
    """
    from agent_rl.tools import inspection
    from agent_rl.trajectory import ToolStatus

    objects = json_object("ARGUMENTS", arguments), json_object("--create-kwargs", create_kwargs)
    result = inspection.call(_specs(file), name, *objects)
    keys = ("text", "status", "seconds", "reward")
    print_result({name: getattr(result, name) for name in keys}, as_json, result.text)
    if not as_json:
        reward = "" if result.reward is None else f", reward {result.reward:g}"
        print(f"[{result.status.value}, {result.seconds:.3f} s{reward}]", file=sys.stderr)
    raise typer.Exit(result.status is not ToolStatus.OK)


@app.command()
def expand(file: Annotated[Path, typer.Argument(help="Tool file")], as_json: Json = False) -> None:
    """Print a tool file with every tool's schema as the policy sees it; loading the output needs no server.

    --json: `tools`; the JSON is also a valid tool file.
    """
    import yaml

    from agent_rl.tools import load_tools
    from agent_rl.tools.inspection import expand

    text = expand(load_tools(file))
    if as_json:
        print_json(yaml.safe_load(text))
    else:
        print(text, end="")


def _specs(file: Path) -> list[ToolSpec]:
    from agent_rl.verl_adapter.inspection import load_specs

    return load_specs(str(file))
