"""Formats with one text as the action (a query, a program), and the tool that takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_rl.agents.episode.format import TextFormat
from agent_rl.errors import ConfigError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["TextTool", "TextToolFormat"]


@dataclass(frozen=True, slots=True)
class TextTool:
    """A tool and the parameter that takes the text."""

    name: str
    parameter: str

    def call(self, text: str) -> ToolCall:
        """The call with this text."""
        return ToolCall(self.name, {self.parameter: text})

    @classmethod
    def find(cls, tools: Sequence[ToolSpec], name: str | None, default: str, key: str) -> TextTool:
        """The tool that takes the text.

        Args:
            tools: those of the row.
            name: the configured name; None: the only tool, or the one of the default's name.
            default: the usual name.
            key: the configuration key, for the error.

        Raises:
            ConfigError: when there is no such tool, or it has no parameter that alone takes a text.
        """
        known = {tool.name: tool for tool in tools}
        wanted = name or (next(iter(known)) if len(known) == 1 else default)
        if wanted not in known:
            problem = f"there is no tool {wanted!r} among {sorted(known)}"
            raise ConfigError(
                key, problem, "Name one that multi_turn.tool_config_path and the row's tool_selection have"
            )
        parameters = known[wanted].parameters
        properties = parameters.get("properties", {})
        required = parameters.get("required") or list(properties)
        if len(required) != 1 or not _is_text(properties.get(required[0])):
            problem = f"the tool {wanted!r} needs {required}, where one text is to be given"
            raise ConfigError(key, problem, "Name a tool whose one required parameter is a string")
        return cls(wanted, required[0])


class TextToolFormat(TextFormat):
    """A format with one text for one tool as its action.

    Args:
        instructions: system text; None: the default; empty: none.
        observation_role: role of the message that shows the results.
        tool: the tool that takes the text; None: the only one, or the one of the usual name.
    """

    usual_tool: str = ""
    tool_key: str = ""
    """The configuration key of `tool`."""

    def __init__(
        self,
        instructions: str | None = None,
        observation_role: Literal["user", "tool"] = "user",
        tool: str | None = None,
    ) -> None:
        super().__init__(instructions, observation_role)
        self._tool = tool

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """The system text.

        Raises:
            ConfigError: when no tool takes the text.
        """
        self.find(tools)
        return super().instructions(tools)

    def find(self, tools: Sequence[ToolSpec]) -> TextTool:
        """The tool that takes the text; raises ConfigError when there is none."""
        return TextTool.find(tools, self._tool, self.usual_tool, self.tool_key)


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "string" in schema.get("type", ())
