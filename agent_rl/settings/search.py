"""The tags of `search_agent`: `agent_rl.search`."""

from typing import Literal

from agent_rl.settings.section import Section

__all__ = ["SearchSettings"]


class SearchSettings(Section):
    """The tags of `search_agent`."""

    instructions: str | None = None
    """System text; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries what was found."""
    tool: str | None = None
    """The tool that a query goes to; null: the only one, or `search`."""
