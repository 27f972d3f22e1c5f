"""`tool_call_agent`: native function calling, in the syntax that `multi_turn.format` names."""

from __future__ import annotations

from agent_rl.loops.tool_call import ToolCallFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["ToolCallAgentLoop"]


class ToolCallAgentLoop(EpisodeAgentLoop):
    """The loop."""

    agent = "tool_call_agent"

    def format(self) -> ToolCallFormat:
        """Native calls in the configured syntax."""
        return ToolCallFormat(self.limits.format)
