"""The command `agent-rl`: parse, call, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import agent_rl
from agent_rl.cli.audit import tokens
from agent_rl.cli.doctor import doctor
from agent_rl.cli.evaluation import evaluate, score
from agent_rl.cli.reward import attack, what_if
from agent_rl.cli.reward import score as reward_score
from agent_rl.cli.serve import serve
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.trajectory import ToolStatus

if TYPE_CHECKING:
    from agent_rl.tools import ToolSpec

__all__ = ["app", "main"]

app = typer.Typer(help="Train LLM agents that use tools.", no_args_is_help=True, add_completion=False)
tools_app = typer.Typer(help="What one uses while writing a tool file.", no_args_is_help=True)
app.add_typer(tools_app, name="tools")
audit_app = typer.Typer(help="Checks of what a run has stored.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")
audit_app.command()(tokens)
reward_app = typer.Typer(help="The reward beside training.", no_args_is_help=True)
app.add_typer(reward_app, name="reward")
reward_app.command("score")(reward_score)
reward_app.command()(attack)
reward_app.command("what-if")(what_if)
reward_app.command()(serve)


@audit_app.callback()
def _audit() -> None: ...


@reward_app.callback()
def _reward() -> None: ...


@app.command(context_settings={"ignore_unknown_options": True})
def train(
    recipe: Annotated[str, typer.Argument(help="Folder with config.yaml, for example recipes/gsm8k_calculator")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Hydra overrides: keys of verl or agent_rl, and groups"),
    ] = None,
    script: Annotated[
        str | None, typer.Option(help="Your own entry point: registers loops, then calls verl.trainer.main_ppo.main()")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the composed configuration, and start nothing")
    ] = False,
    nodes_timeout_s: Annotated[float, typer.Option(help="Seconds within which all nodes must have joined")] = 600,
) -> None:
    r"""Train a recipe with verl.

    \b
      agent-rl train recipes/gsm8k_calculator
      agent-rl train RECIPE size=3b actor_rollout_ref.rollout.n=16
      agent-rl train RECIPE --script my_train.py
      agent-rl train RECIPE --dry-run > composed.yaml

    A key is written as in the composed configuration; a group (size=) chooses one of its files. What is not known is
    refused, with the nearest that is.

    VERL_PLATFORM=cpu trains on a CPU: it adds the CPU profile, and size=cpu where the recipe has that.

    Several nodes: run the same command on each. Rank 0 starts Ray, waits for the others and trains.

    \b
      NNODES=2 NODE_RANK=0 MASTER_ADDR=host0 agent-rl train RECIPE
      NNODES=2 NODE_RANK=1 MASTER_ADDR=host0 agent-rl train RECIPE

    MASTER_PORT is the port of Ray's head, 6379 if unset. Under SLURM, srun says all of this by itself. RAY_ADDRESS
    joins a cluster that runs already; trainer.nnodes says then how many of its nodes to use.
    """
    from agent_rl.launch import training

    if dry_run:
        composed, notes = training.dry_run(recipe, overrides or [], script)
        print(composed, end="")
        print(*notes, sep="\n", file=sys.stderr)
        raise typer.Exit(len(notes) > 1)
    raise typer.Exit(training.train(recipe, overrides or [], script, nodes_timeout_s=nodes_timeout_s))


app.command(context_settings={"ignore_unknown_options": True})(doctor)
app.command("eval")(evaluate)
app.command()(score)


@tools_app.command("list")
def list_tools() -> None:
    """The built-in tools."""
    from agent_rl.tools.inspection import built_in

    table = Table("name", "kind", "what it is", box=None, pad_edge=False, header_style="bold")
    for row in built_in():
        table.add_row(*map(escape, row))
    Console().print(table)


@tools_app.command()
def check(files: Annotated[list[Path], typer.Argument(help="Tool files, as tool_config_path would name them")]) -> None:
    """Read tool files as training would, and show their tools."""
    from agent_rl.tools.inspection import signature

    for file in files:
        specs = _specs(file)
        print(f"{file}: {len(specs)} tool{'s' if len(specs) > 1 else ''}")
        for spec in specs:
            print(f"  {signature(spec)}")


@tools_app.command()
def call(
    file: Annotated[Path, typer.Argument(help="The tool file")],
    name: Annotated[str, typer.Argument(help="Which of its tools")],
    arguments: Annotated[str, typer.Argument(help="The arguments, a JSON object")] = "{}",
    create_kwargs: Annotated[str, typer.Option(help="What a row would give the tool, a JSON object")] = "{}",
) -> None:
    """Call one tool as the policy would: its text on stdout, status and seconds on stderr."""
    from agent_rl.tools import inspection

    given = _json_object("ARGUMENTS", arguments), _json_object("--create-kwargs", create_kwargs)
    result = inspection.call(_specs(file), name, *given)
    print(result.text)
    reward = "" if result.reward is None else f", reward {result.reward:g}"
    print(f"[{result.status.value}, {result.seconds:.3f} s{reward}]", file=sys.stderr)
    raise typer.Exit(result.status is not ToolStatus.OK)


@tools_app.command()
def expand(file: Annotated[Path, typer.Argument(help="The tool file")]) -> None:
    """Write out every tool with its schema: what the policy sees, and a file that needs no server to be read."""
    from agent_rl.tools import load_tools
    from agent_rl.tools.inspection import expand

    print(expand(load_tools(file)), end="")


@tools_app.command("from-openapi")
def from_openapi(
    spec: Annotated[Path, typer.Argument(help="An OpenAPI 3 document, JSON or YAML")],
    base_url: Annotated[str | None, typer.Option(help="Address of the service, if not the document's")] = None,
    include: Annotated[list[str] | None, typer.Option(help="Only these operations; wildcards, may be repeated")] = None,
) -> None:
    """Write the tool file of an HTTP API from its OpenAPI document, to stdout."""
    from agent_rl.tools.builtin import openapi

    conversion = openapi.from_openapi(openapi.read_openapi(spec), base_url=base_url, include=include or None)
    print(openapi.to_yaml(conversion), end="")


@app.command()
def version() -> None:
    """Print the version."""
    print(agent_rl.__version__)


def _specs(file: Path) -> list[ToolSpec]:
    from agent_rl.verl_adapter.tool_files import load_specs

    return load_specs(str(file))


def _json_object(key: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(key, f"not JSON ({error}): {text}", """Write '{"name": "value"}'""") from error
    if not isinstance(value, dict):
        raise ConfigError(key, f"expected a JSON object, got {text}", """Write '{"name": "value"}'""")
    return value


def main() -> None:
    """Entry point: an error of ours is one line, not a traceback."""
    try:
        app()
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
