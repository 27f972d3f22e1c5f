"""`Format`: how an agent's turns are written and read. An episode knows no text format; it asks this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_rl.agents.episode.policy import ChatMessage, Generation
from agent_rl.agents.episode.thinking import spoken
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall, ToolResult

__all__ = ["Format", "Step", "with_images"]


@dataclass(slots=True)
class Step:
    """What one turn asks for: calls, or an answer when there are none."""

    calls: list[ToolCall] = field(default_factory=list)
    answer: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """For `Turn.notes`."""


class Format(ABC):
    """How an agent's turns are written and read."""

    stop: Sequence[str] = ()
    """Strings that end a turn."""
    stop_tokens: Sequence[str] = ()
    """Special tokens that end a turn, beside those of the model's configuration."""
    special_tokens: bool = False
    """Whether a turn's text has its special tokens, other than the one that ends it."""
    keep_stop: bool = False
    """Whether the stop string belongs to the turn, as a closing tag does."""

    @abstractmethod
    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """The row's messages with whatever the format must tell the policy about itself and the tools."""

    def fresh(self) -> Format:
        """The format of one episode: a format that remembers something of its episode gives another."""
        return self

    def template_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Function schemas for the chat template; none when the prompt's text describes the tools."""
        return []

    def read(self, generated: Generation, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn: what the policy said, without its thoughts, is what counts.

        Raises:
            MalformedActionError: with a text that tells the policy what was expected.
        """
        return self.parse(spoken(generated.text), tools)

    @abstractmethod
    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn's text.

        Raises:
            MalformedActionError: with a text that tells the policy what was expected.
        """

    @abstractmethod
    def observation(self, results: Sequence[ToolResult]) -> str:
        """The text that shows the results of a turn's calls."""

    @abstractmethod
    def correction(self, error: MalformedActionError) -> str:
        """The text that answers a malformed turn."""

    @abstractmethod
    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """The observation as chat messages."""

    def last_word(self, messages: list[ChatMessage], text: str) -> list[ChatMessage]:
        """The messages, with what a policy is told before its final turn: at the end of the last one, if there is one.

        A message of its own would follow one of its kind, which some chat templates refuse.
        """
        if not messages:
            return [{"role": "user", "content": text}]
        *before, last = messages
        content = last["content"]
        told = f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
        return [*before, {**last, "content": told}]


def with_images(text: str, results: Sequence[ToolResult]) -> str | list[dict[str, Any]]:
    """A message's content: the text, after the images of the results where there are any."""
    images = [{"type": "image", "image": image} for result in results for image in result.images]
    return [*images, {"type": "text", "text": text}] if images else text
