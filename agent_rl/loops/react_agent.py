"""`react_agent`: reasons and acts in the ReAct text format, for any chat model."""

from __future__ import annotations

from agent_rl.loops.react import ReactFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["ReactAgentLoop"]


class ReactAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.react`."""

    agent = "react_agent"

    def format(self) -> ReactFormat:
        """The ReAct format as configured."""
        react = self.settings.react
        return ReactFormat(react.instructions, react.observation_role)
