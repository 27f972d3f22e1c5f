"""`folding_agent`: another loop for long tasks, whose history is folded into the policy's own notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.loops.folding import FoldingPolicy
from agent_rl.loops.format import Format
from agent_rl.loops.policy import Policy
from agent_rl.loops.registry import BUILT_IN
from agent_rl.loops.token_policy import TokenPolicy
from agent_rl.loops.user import User
from agent_rl.loops.verl_loop import EpisodeAgentLoop
from agent_rl.tools.importing import find_class

__all__ = ["FoldingAgentLoop"]

KEY = "agent_rl.folding"


class FoldingAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.folding` and those of the loop that `folding.loop` names."""

    agent = "folding_agent"

    def format(self) -> Format:
        """The folded loop's."""
        return self._folded().format(self)

    def user(self, row: dict[str, Any]) -> User | None:
        """The folded loop's."""
        return self._folded().user(self, row)

    def conversation(self, policy: TokenPolicy) -> Policy:
        """The conversation with verl's server, folded.

        Raises:
            ConfigError: when what is kept for notes leaves nothing for turns.
        """
        folding, length = self.settings.folding, self.rollout_config.response_length
        if folding.reserve_tokens >= length:
            problem = f"{folding.reserve_tokens} is not less than data.max_response_length={length}"
            raise ConfigError(f"{KEY}.reserve_tokens", problem, "Lower it")
        return FoldingPolicy(
            policy,
            reserve_tokens=folding.reserve_tokens,
            max_folds=folding.max_folds,
            instructions=folding.instructions,
        )

    def _folded(self) -> type[EpisodeAgentLoop]:
        name = self.settings.folding.loop
        known = {each: path for each, path in BUILT_IN.items() if each != self.agent}
        if name not in known:
            raise ConfigError(f"{KEY}.loop", f"there is no loop {name!r} to fold", did_you_mean(name, known))
        return find_class(known[name], Path.cwd())
