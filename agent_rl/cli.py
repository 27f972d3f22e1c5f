"""The command `agent-rl`: parse, call, print."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import agent_rl
from agent_rl.errors import AgentRLError

__all__ = ["app", "main"]

app = typer.Typer(help="Train LLM agents that use tools.", no_args_is_help=True, add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def train(
    recipe: Annotated[str, typer.Argument(help="Folder with config.yaml, for example recipes/gsm8k_calculator")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides, key=value")] = None,
    script: Annotated[
        str | None, typer.Option(help="Your own entry point: registers loops, then calls verl.trainer.main_ppo.main()")
    ] = None,
) -> None:
    """Train a recipe with verl; VERL_PLATFORM=cpu runs it on a CPU."""
    from agent_rl.backend.launch import trainer_command

    command = trainer_command(recipe, overrides or [], script)
    os.execv(command[0], command)


@app.command()
def version() -> None:
    """Print the version."""
    print(agent_rl.__version__)


def main() -> None:
    """Entry point: an error of ours is one line, not a traceback."""
    try:
        app()
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
