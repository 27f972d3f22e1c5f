"""`MethodTool`: a public method of an environment as a tool."""

from __future__ import annotations

from typing import Any

from agent_rl.tools import Tool
from agent_rl.tools.base import ToolConfig, ToolOutput

__all__ = ["SESSION", "MethodTool"]

SESSION = "agent_rl.environment"
"""Key of the trajectory's `EnvironmentSession` among the resources that its tools share."""


class _Method(ToolConfig):
    method: str


class MethodTool(Tool):
    """Calls a method of the trajectory's environment."""

    Config = _Method
    in_order = True

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Call the method and return its result."""
        output: ToolOutput = await self.scope.shared(SESSION).call(self.settings.method, arguments)
        return output
