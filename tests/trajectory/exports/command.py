"""Runs `agent-rl trace export`."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from agent_rl.cli.main import app


def export(source: Path, form: str, *arguments: Any) -> Any:
    """What it prints, as JSON data; its own error is raised."""
    words = ["trace", "export", str(source), "--format", form, "--json", *map(str, arguments)]
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
