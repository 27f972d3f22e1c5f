"""`folding_agent`: another loop for long tasks, whose history is folded into the policy's own notes."""

from __future__ import annotations

from typing import Any

from agent_rl.agents.agents import make_conversation, make_format, make_user
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.users.user import User
from agent_rl.policies.token_policy import TokenPolicy
from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop

__all__ = ["FoldingAgentLoop"]


class FoldingAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.folding` and those of the loop that `folding.loop` names."""

    agent = "folding_agent"

    def format(self) -> Format:
        """The folded loop's."""
        return make_format("folding_agent", self.settings, self.limits.format)

    def user(self, row: dict[str, Any]) -> User | None:
        """The folded loop's."""
        return make_user("folding_agent", self.settings, row.get("extra_info"))

    def conversation(self, policy: TokenPolicy) -> Policy:
        """The conversation with verl's server, folded."""
        return make_conversation("folding_agent", self.settings, policy, self.limits.response_length)
