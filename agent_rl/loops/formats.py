"""The formats of our agents by the agents' names, for episodes that run without verl."""

from __future__ import annotations

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.loops.format import Format
from agent_rl.loops.react import ReactFormat
from agent_rl.settings import AgentRLSettings

__all__ = ["make_format"]


def make_format(agent: str, settings: AgentRLSettings) -> Format:
    """How an agent's turns are written and read, as configured.

    Raises:
        ConfigError: for a name that is not one of ours.
    """
    if agent == "react_agent":
        return ReactFormat(settings.react.instructions, settings.react.observation_role)
    raise ConfigError("loop", f"there is no loop {agent!r} for evaluation", did_you_mean(agent, ["react_agent"]))
