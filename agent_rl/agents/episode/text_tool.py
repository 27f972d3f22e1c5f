"""The tool of a format whose action is one text: a query, a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["TextTool"]


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
            name: what the configuration says; None: the only tool, or the one of the default's name.
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


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "string" in schema.get("type", ())
