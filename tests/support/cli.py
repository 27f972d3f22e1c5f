"""The command `agent-rl` in this process, where it starts at once and its own errors are raised."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from agent_rl.cli.main import app

__all__ = ["invoke", "printed", "shown"]


def invoke(*words: object, **options: Any) -> Result:
    """The command's exit code and output."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, **options)


def shown(*words: object, **options: Any) -> str:
    """What the command prints, which must succeed."""
    done = invoke(*words, **options)
    assert done.exit_code == 0, (words, done.output[-2000:])
    return done.stdout


def printed(*words: object, **options: Any) -> Any:
    """The JSON data that the command prints."""
    return json.loads(shown(*words, "--json", **options))
