"""The command `agent-rl version`."""

import typer

import agent_rl

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def version() -> None:
    """Print the version."""
    print(agent_rl.__version__)
