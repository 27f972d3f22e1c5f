"""The command `agent-rl`: every file of this folder without an underscore is a command of the file's name.

A command's file has an `app`, a `typer.Typer`, and imports at its top only what is light: `agent-rl --help` imports all
of them.
"""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import agent_rl
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.user_code import UserCodeError

__all__ = ["app", "main"]

DEBUG = "--debug"
RENAMED = {"score": "reward score", "version": "--version"}
"""Commands that have another name now."""


class _Folder(TyperGroup):
    """The commands of this folder, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = {path.stem for path in Path(__file__).parent.glob("*.py")} - {Path(__file__).stem}
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in RENAMED:
            raise ConfigError(f"agent-rl {cmd_name}", "it has another name", f"Use agent-rl {RENAMED[cmd_name]}")
        if cmd_name not in self.list_commands(ctx):
            return None
        command = typer.main.get_command(import_module(f"agent_rl.cli.{cmd_name.replace('-', '_')}").app)
        command.name = cmd_name
        _lay_out(command)
        return command


def _lay_out(command: Any) -> None:
    r"""Make each paragraph of the help one line, which is then wrapped; those marked with `\b` keep their lines."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(
        textwrap.dedent(part.removeprefix("\\b\n")) if part.startswith("\\b\n") else " ".join(part.split("\n"))
        for part in paragraphs
    )
    for below in getattr(command, "commands", {}).values():
        _lay_out(below)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(agent_rl.__version__)
        raise typer.Exit


app = typer.Typer(cls=_Folder, no_args_is_help=True)


@app.callback()
def _agent_rl(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; it may stand anywhere")
    ] = False,
) -> None:
    """Train LLM agents that use tools."""


def main() -> None:
    """Entry point: an `AgentRLError` is one line, below a traceback of the user's code.

    The exit status is 2 for a wrong configuration or an unusable path.
    """
    debug = DEBUG in sys.argv
    if debug:
        sys.argv.remove(DEBUG)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # for the trainer
    sys.path.insert(0, os.getcwd())  # as for `python -m`, by which the trainer starts
    try:
        app()
    except (AgentRLError, OSError) as error:
        if debug or (isinstance(error, OSError) and error.filename is None):
            raise
        trace = f"{error.trace}\n" if isinstance(error, UserCodeError) else ""
        print(f"{trace}error: {_line(error)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError | OSError) else 1)


def _line(error: AgentRLError | OSError) -> str:
    if isinstance(error, AgentRLError):
        return str(error)
    return f"{error.filename}: {error.strerror}. Name a file or a folder that can be used"


if __name__ == "__main__":
    main()
