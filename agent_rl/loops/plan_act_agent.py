"""`plan_act_agent`: writes a plan, acts by it, and revises it."""

from __future__ import annotations

from agent_rl.loops.plan_act import PlanActFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["PlanActAgentLoop"]


class PlanActAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.plan_act`."""

    agent = "plan_act_agent"

    def format(self) -> PlanActFormat:
        """Plan and ReAct turns as configured."""
        plan_act = self.settings.plan_act
        return PlanActFormat(plan_act.instructions, plan_act.observation_role)
