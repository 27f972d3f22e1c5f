"""`code_act_agent`: works by running Python in the trajectory's sandbox."""

from __future__ import annotations

from agent_rl.agents.agents import make_format
from agent_rl.agents.episode.format import Format
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["CodeActAgentLoop"]


class CodeActAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.code_act`."""

    agent = "code_act_agent"

    def format(self) -> Format:
        """Fenced code as configured."""
        return make_format("code_act_agent", self.settings)
