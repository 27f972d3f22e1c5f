"""`plan_act_agent`: writes a plan, acts by it, and revises it."""

from __future__ import annotations

from agent_rl.agents.agents import make_format
from agent_rl.agents.episode.format import Format
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["PlanActAgentLoop"]


class PlanActAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.plan_act`."""

    agent = "plan_act_agent"

    def format(self) -> Format:
        """Plan and ReAct turns as configured."""
        return make_format("plan_act_agent", self.settings)
