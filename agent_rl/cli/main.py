"""The command `agent-rl`: every file of this folder without an underscore is a command of the file's name.

A command's file has an `app`, a `typer.Typer`, and imports at its top only what is light: `agent-rl --help` imports all
of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from agent_rl.errors import AgentRLError, ConfigError

__all__ = ["app", "main"]

RENAMED = {"score": "reward score"}
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
        return command


app = typer.Typer(cls=_Folder, no_args_is_help=True, add_completion=False)


@app.callback()
def _agent_rl() -> None:
    """Train LLM agents that use tools."""


def main() -> None:
    """Entry point: an `AgentRLError` is printed as one line, without a traceback."""
    try:
        app()
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
