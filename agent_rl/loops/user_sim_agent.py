"""`user_sim_agent`: talks with a simulated user, who has a hidden goal, and has tools."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.loops.user import ROW_KEY, User, load_user
from agent_rl.loops.user_sim import UserSimFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["UserSimAgentLoop"]


class UserSimAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.user_sim`, and the row's are `extra_info.user`."""

    agent = "user_sim_agent"

    def format(self) -> UserSimFormat:
        """Messages and actions as configured."""
        user_sim = self.settings.user_sim
        return UserSimFormat(user_sim.instructions, user_sim.observation_role)

    def user(self, row: dict[str, Any]) -> User:
        """This row's user.

        Raises:
            ConfigError: for a class or a config that cannot be used, or a row without `extra_info.user`.
        """
        settings = self.settings.user_sim
        about = (row.get("extra_info") or {}).get("user")
        if about is None:
            raise ConfigError(ROW_KEY, "the row has none", "Give its user there, for example {'goal': ...}")
        return load_user(settings.user, settings.config)(MappingProxyType(settings.config), about)
