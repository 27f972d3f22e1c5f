"""`user_sim_agent`: talks with a simulated user, who has a hidden goal, and has tools."""

from __future__ import annotations

from typing import Any

from agent_rl.agents.agents import make_format, make_user
from agent_rl.agents.episode.format import Format
from agent_rl.agents.users.user import User
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["UserSimAgentLoop"]


class UserSimAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.user_sim`, and the row's are `extra_info.user`."""

    agent = "user_sim_agent"

    def format(self) -> Format:
        """Messages and calls as configured."""
        return make_format("user_sim_agent", self.settings, self.limits.format)

    def user(self, row: dict[str, Any]) -> User | None:
        """This row's user."""
        return make_user("user_sim_agent", self.settings, row.get("extra_info"))
