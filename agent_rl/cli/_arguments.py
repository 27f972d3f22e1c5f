"""Parses arguments that several commands take."""

from __future__ import annotations

import json
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["json_object"]


def json_object(key: str, text: str) -> dict[str, Any]:
    """Parse an argument that is a JSON object.

    Raises:
        ConfigError: naming the argument.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(key, f"not JSON ({error}): {text}", """Write '{"name": value}'""") from error
    if not isinstance(value, dict):
        raise ConfigError(key, f"expected a JSON object, got {text}", """Write '{"name": value}'""")
    return value
