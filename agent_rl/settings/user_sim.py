"""The simulated user of `user_sim_agent`: `agent_rl.user_sim`."""

from typing import Any, Literal

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = ["UserSimSettings"]


class UserSimSettings(Section):
    """The simulated user of `user_sim_agent`, and the agent's text format."""

    user: str = "scripted"
    """`scripted`, `llm`, or a class of `agent_rl.agents.users.user.User`, `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What the class takes."""
    native: bool = False
    """Whether the agent writes as `tool_call_agent` does, a turn without a call being a message."""
    instructions: str | None = None
    """The agent's system text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation. Neither this nor `instructions` counts with `native`."""
