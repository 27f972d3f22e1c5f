"""`react_agent`: reasons and acts in the ReAct text format, for any chat model."""

from __future__ import annotations

from agent_rl.agents.agents import make_format
from agent_rl.agents.episode.format import Format
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["ReactAgentLoop"]


class ReactAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.react`."""

    agent = "react_agent"

    def format(self) -> Format:
        """The ReAct format as configured."""
        return make_format("react_agent", self.settings)
