"""`tool_call_agent`: native function calling, in the syntax that `multi_turn.format` names."""

from __future__ import annotations

from agent_rl.agents.agents import make_format
from agent_rl.agents.episode.format import Format
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["ToolCallAgentLoop"]


class ToolCallAgentLoop(EpisodeAgentLoop):
    """The loop."""

    agent = "tool_call_agent"

    def format(self) -> Format:
        """Native calls in the configured syntax."""
        return make_format("tool_call_agent", self.settings, self.limits.format)
