"""`settings_of`: the section `agent_rl` as a worker's process reads it, once."""

from __future__ import annotations

from typing import Any

from agent_rl.settings import AgentRLSettings

__all__ = ["settings_of"]


def settings_of(config: Any) -> AgentRLSettings:
    """The section of a worker's whole configuration, which has the addresses of served models.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    known = _read.get(id(config))
    if known is None or known[0] is not config:
        known = _read[id(config)] = (config, AgentRLSettings.from_config(config))
    return known[1]


_read: dict[int, tuple[Any, AgentRLSettings]] = {}
"""By identity: verl makes a loop for every row with the same configuration."""
