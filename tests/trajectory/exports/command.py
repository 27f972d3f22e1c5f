"""Runs `agent-rl trace export`."""

from pathlib import Path
from typing import Any

from tests.support.cli import printed


def export(source: Path, form: str, *arguments: Any) -> Any:
    """What it prints, as JSON data; its own error is raised."""
    return printed("trace", "export", source, "--format", form, *arguments)
