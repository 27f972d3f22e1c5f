"""Hooks: a user's own code that runs before and after an episode's turns and calls.

    class Patience(Hooks):
        async def before_turn(self, trajectory):
            self.turns = len(trajectory.turns)

        async def after_tool(self, trajectory, call, result):
            if result.status is ToolStatus.TIMEOUT:
                result.text += " Ask for less."

Each episode has its own instance, which may keep state. Set `agent_rl.hooks` to the class, or return an instance from
the loop's `hooks` method. An exception in a hook ends the episode with an error, which the policy does not see, and
leaves the trajectory unscored.
"""

from __future__ import annotations

from functools import cache

from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_class
from agent_rl.trajectory import ToolCall, ToolResult, Trajectory, Turn

KEY = "agent_rl.hooks"


class Hooks:
    """Hooks that do nothing; override the methods that you need."""

    async def before_turn(self, trajectory: Trajectory) -> None:
        """Called before the policy generates its next turn."""

    async def after_turn(self, trajectory: Trajectory, turn: Turn) -> bool | None:
        """Called after a turn that does not end the episode; returning True ends it with the reason `STOPPED`."""

    async def before_tool(self, trajectory: Trajectory, call: ToolCall) -> ToolResult | None:
        """Called before a tool call is run; a returned result replaces the tool's own result."""

    async def after_tool(self, trajectory: Trajectory, call: ToolCall, result: ToolResult) -> None:
        """Called before the policy sees a tool's result, which the hook may change."""


@cache
def load_hooks(path: str) -> type[Hooks]:
    """Load the class that `agent_rl.hooks` names.

    Args:
        path: `package.module.Class`, or `path/to/file.py:Class`.

    Raises:
        ConfigError: the path does not name a subclass of `Hooks`.
    """
    hooks_class: type[Hooks] = find_class(path, Hooks, Place(KEY))
    return hooks_class
