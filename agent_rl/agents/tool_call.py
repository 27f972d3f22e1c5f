"""Native function calling: the chat template describes the tools, and the model writes calls in its trained syntax.

A turn without a call is the answer. Results are messages with role `tool`, one for each call; if a call cannot be read,
a message with role `user` reports the error, and none of the turn's calls is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Format, Step, spoken, with_images
from agent_rl.agents.episode.policy import ChatMessage, Generation
from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall, ToolResult

FORMAT_KEY = "actor_rollout_ref.rollout.multi_turn.format"
AUTO = "auto"
"""The value of `multi_turn.format` that selects the syntax in which the chat template writes calls."""


class ToolCallFormat(Format):
    """The format of native tool calls in one syntax.

    Args:
        syntax: name of the syntax. If the chat template is unknown, use "auto" for an endpoint that parses calls itself
            (`Generation.calls`); for any other endpoint, "auto" means hermes.

    Raises:
        ConfigError: no syntax has this name.
    """

    special_tokens = True

    def __init__(self, syntax: str = "hermes") -> None:
        syntax = "hermes" if syntax == AUTO else syntax
        if syntax not in SYNTAXES:
            raise ConfigError(
                FORMAT_KEY, f"there is no tool-call syntax {syntax!r}", did_you_mean(syntax, [*SYNTAXES, AUTO])
            )
        self._syntax = SYNTAXES[syntax]
        self.stop_tokens = self._syntax.stop_tokens

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """Return the row's messages unchanged."""
        return list(messages)

    def template_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return the schemas of all tools."""
        return [tool.schema() for tool in tools]

    def read(self, generated: Generation, tools: Sequence[ToolSpec]) -> Step:
        """Return the calls that the endpoint has parsed, or else the calls in the text."""
        if generated.calls is None:
            return super().read(generated, tools)
        return Step(generated.calls, None if generated.calls else spoken(generated.text).strip())

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Return the calls of a turn, or its text as the answer."""
        content, calls = self.split(text, tools)
        return Step(calls=calls) if calls else Step(answer=content)

    def split(self, text: str, tools: Sequence[ToolSpec]) -> tuple[str, list[ToolCall]]:
        """Return the text around the calls of a turn, and the calls.

        Raises:
            MalformedActionError: a call cannot be read.
        """
        return self._syntax.read(text, tools)

    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """Return a tool message per result; a correction is a user message."""
        if not results:
            return [{"role": "user", "content": observation}]
        return [_message(result) for result in results]


AGENT = Agent("tool_call_agent", lambda settings, limits: ToolCallFormat(limits.format))


def _message(result: ToolResult) -> ChatMessage:
    message: ChatMessage = {"role": "tool", "name": result.name, "content": with_images(result.text, [result])}
    if result.call_id:
        message["tool_call_id"] = result.call_id
    return message
