"""Reads what a run writes besides its trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["leaves", "read_metrics"]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of each step of a run, with its number as `step`; step 0 is the validation before training."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{"step": record["step"], **record["data"]} for record in map(json.loads, lines)]


def leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of plain containers with its value; a list is a value."""
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    else:
        yield path, plain
