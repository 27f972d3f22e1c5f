"""`search_agent`: reasons, searches and answers in tags."""

from __future__ import annotations

from agent_rl.agents.agents import make_format
from agent_rl.agents.episode.format import Format
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["SearchAgentLoop"]


class SearchAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.search`."""

    agent = "search_agent"

    def format(self) -> Format:
        """The tags as configured."""
        return make_format("search_agent", self.settings)
