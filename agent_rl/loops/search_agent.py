"""`search_agent`: reasons, searches and answers in tags."""

from __future__ import annotations

from agent_rl.loops.search import SearchFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["SearchAgentLoop"]


class SearchAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.search`."""

    agent = "search_agent"

    def format(self) -> SearchFormat:
        """The tags as configured."""
        search = self.settings.search
        return SearchFormat(search.instructions, search.observation_role, search.tool)
