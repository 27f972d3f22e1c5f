"""The plan and the turns of `plan_act_agent`: `agent_rl.plan_act`."""

from typing import Literal

from agent_rl.settings.section import Section

__all__ = ["PlanActSettings"]


class PlanActSettings(Section):
    """The plan and the ReAct turns of `plan_act_agent`."""

    instructions: str | None = None
    """System text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation."""
