"""`code_act_agent`: works by running Python in the trajectory's sandbox."""

from __future__ import annotations

from agent_rl.loops.code_act import CodeActFormat
from agent_rl.loops.verl_loop import EpisodeAgentLoop

__all__ = ["CodeActAgentLoop"]


class CodeActAgentLoop(EpisodeAgentLoop):
    """The loop; its settings are `agent_rl.code_act`."""

    agent = "code_act_agent"

    def format(self) -> CodeActFormat:
        """Fenced code as configured."""
        code_act = self.settings.code_act
        return CodeActFormat(code_act.instructions, code_act.answer, code_act.observation_role, code_act.tool)
