"""`Format`: writes an agent's prompt and observations, and reads its turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_rl.agents.episode.policy import ChatMessage, Generation
from agent_rl.data.contract import IMAGE
from agent_rl.errors import ConfigError, MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.arguments import json_types
from agent_rl.trajectory import ToolCall, ToolResult

__all__ = [
    "Format",
    "Step",
    "TextFormat",
    "TextToolFormat",
    "dropped_thoughts",
    "spoken",
    "thoughts_of",
    "with_images",
    "with_instructions",
]

OPEN, CLOSE = "<think>", "</think>"
"""Tags around a thought. A thought is sampled and trained on, but a call or an answer inside a thought is ignored."""
OTHER_THOUGHTS = (("<mm:think>", "</mm:think>"), ("<seed:think>", "</seed:think>"), ("[THINK]", "[/THINK]"))
"""Tags around the thoughts of MiniMax M3, Seed-OSS and Mistral's reasoning models."""


@dataclass(slots=True)
class Step:
    """A parsed turn: its calls or, if it has no calls, its answer."""

    calls: list[ToolCall] = field(default_factory=list)
    answer: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """Entries for `Turn.notes`."""


class Format(ABC):
    """Writes an agent's prompt and observations, and reads its turns."""

    stop: Sequence[str] = ()
    """Strings that end a turn."""
    stop_tokens: Sequence[str] = ()
    """Special tokens that end a turn, in addition to the tokens in the model's configuration."""
    special_tokens: bool = False
    """Whether a turn's text keeps its special tokens, except the token that ends the turn."""
    keep_stop: bool = False
    """Whether the turn's text includes the stop string, for example because it is a closing tag."""
    around: tuple[str, str] = ("", "")
    """The text before and after each result."""

    @abstractmethod
    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """Return the row's messages with the format's instructions and the descriptions of the tools."""

    def fresh(self) -> Format:
        """Return the format for one episode; a format with state returns a new instance."""
        return self

    def template_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return function schemas for the chat template; the list is empty if the prompt's text describes the tools."""
        return []

    def read(self, generated: Generation, tools: Sequence[ToolSpec]) -> Step:
        """Parse a turn after removing its thoughts.

        Raises:
            MalformedActionError: the turn cannot be read; the error's text tells the policy what was expected.
        """
        return self.parse(spoken(generated.text), tools)

    @abstractmethod
    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn's text.

        Raises:
            MalformedActionError: the turn cannot be read; the error's text tells the policy what was expected.
        """

    def observation(self, results: Sequence[ToolResult]) -> str:
        """Return the text that shows the results of a turn's calls, one after another."""
        return "\n".join(self._shown(result.text) for result in results)

    def correction(self, error: MalformedActionError) -> str:
        """Return the text that answers a malformed turn by describing the mistake."""
        return self._shown(f"Error: {error}")

    @abstractmethod
    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """Return the observation as chat messages."""

    def last_word(self, messages: list[ChatMessage], text: str) -> list[ChatMessage]:
        """Append the text that announces the final turn to the last message, or return it as the only message.

        Some chat templates would reject a separate message, because it has the same role as the message before it.
        """
        if not messages:
            return [{"role": "user", "content": text}]
        *before, last = messages
        return [*before, {**last, "content": joined_content(last["content"], text)}]

    def _shown(self, text: str) -> str:
        before, after = self.around
        return f"{before}{text}{after}"


class TextFormat(Format):
    """A format that puts its instructions in the system message, and all results of a turn in one message.

    Args:
        instructions: system text; None means the default text, and "" means no text.
        observation_role: role of the message that shows the results.
    """

    default_instructions: str = ""

    def __init__(self, instructions: str | None = None, observation_role: Literal["user", "tool"] = "user") -> None:
        self._instructions = self.default_instructions if instructions is None else instructions
        self._role = observation_role

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Return the system text for these tools."""
        return self._instructions

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """Return the row's messages with the instructions in the system message."""
        return with_instructions(messages, self.instructions(tools))

    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """Return a single message, which shows all results of a turn."""
        return [{"role": self._role, "content": with_images(observation, results)}]


class TextToolFormat(TextFormat):
    """A format in which every call passes a single string to a single tool.

    Args:
        instructions: system text; None means the default text, and "" means no text.
        observation_role: role of the message that shows the results.
        tool: the tool that receives the string; None means the only tool, or `usual_tool` if there are several.
    """

    usual_tool: str = ""
    tool_key: str = ""
    """The configuration key of `tool`, for error messages."""

    def __init__(
        self,
        instructions: str | None = None,
        observation_role: Literal["user", "tool"] = "user",
        tool: str | None = None,
    ) -> None:
        super().__init__(instructions, observation_role)
        self._tool = tool

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Return the system text.

        Raises:
            ConfigError: no tool accepts a single string.
        """
        self.call("", tools)
        return super().instructions(tools)

    def call(self, text: str, tools: Sequence[ToolSpec]) -> ToolCall:
        """Return the call that passes the text to the tool.

        Raises:
            ConfigError: the tool does not exist, or does not accept a single string.
        """
        by_name = {tool.name: tool for tool in tools}
        name = self._tool or (next(iter(by_name)) if len(by_name) == 1 else self.usual_tool)
        if name not in by_name:
            problem = f"there is no tool {name!r} among {sorted(by_name)}"
            remedy = "Name a tool that multi_turn.tool_config_path and the row's tool_selection contain"
            raise ConfigError(self.tool_key, problem, remedy)
        properties = by_name[name].parameters.get("properties", {})
        required = by_name[name].parameters.get("required") or list(properties)
        if len(required) != 1 or "string" not in json_types(properties.get(required[0])):
            problem = f"the {name!r} tool needs {required}, but the agent passes only one string"
            raise ConfigError(self.tool_key, problem, "Use a tool whose only required parameter is a string")
        return ToolCall(name, {required[0]: text})


def with_instructions(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """Return the messages with the text in the system message, after any existing system text."""
    if not text:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": joined_content(messages[0]["content"], text)}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def with_images(text: str, results: Sequence[ToolResult]) -> str | list[dict[str, Any]]:
    """Return a message's content: the text with the results' images at the `<image>` markers or before the text."""
    images = [{"type": "image", "image": image} for result in results for image in result.images]
    if not images:
        return text
    texts = [{"type": "text", "text": part} for part in text.split(IMAGE)]
    if len(texts) != len(images) + 1:
        return [*images, {"type": "text", "text": text}]
    parts = [texts[0], *(part for pair in zip(images, texts[1:], strict=True) for part in pair)]
    return [part for part in parts if part.get("text") != ""]


def joined_content(first: Any, second: Any) -> Any:
    """Return the contents of two messages as the content of one message: text, or a list of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    contents = first, second
    before, after = ([{"type": "text", "text": each}] if isinstance(each, str) else list(each) for each in contents)
    ends = [part["type"] for part in (*before[-1:], *after[:1])]
    return [*before, *([{"type": "text", "text": "\n\n"}] if ends == ["text", "text"] else []), *after]


def spoken(text: str) -> str:
    """Return `text` without its thoughts.

    If the prompt opens a thought, `text` contains only the thought's end; a thought may also lack a closing tag.
    """
    text = _one_kind(text)
    if CLOSE not in text and OPEN not in text:
        return text
    before, *opened = text.split(OPEN)
    visible = "".join([before, *(part.partition(CLOSE)[2] for part in opened)])
    _, closed, rest = visible.partition(CLOSE)
    return (rest if closed else visible).strip()


def thoughts_of(text: str) -> str:
    """Return the closed thoughts in `text` without their tags, or "" if there are none."""
    *thoughts, _ = _one_kind(text).split(CLOSE)
    return "\n".join(thought.rpartition(OPEN)[2].strip() for thought in thoughts)


def dropped_thoughts(messages: Iterable[Mapping[str, Any]], rendered: str) -> bool:
    """Whether the rendered text omits a thought that one of the assistant messages contains."""
    for message in messages:
        content = message["content"] if message["role"] == "assistant" else None
        if isinstance(content, str) and CLOSE in (content := _one_kind(content)):
            thought = content.partition(CLOSE)[0].rpartition(OPEN)[2].strip()
            if thought and thought not in rendered:
                return True
    return False


def _one_kind(text: str) -> str:
    """Return the text with the tags of every thought replaced by `OPEN` and `CLOSE`."""
    for opening, closing in OTHER_THOUGHTS:
        if closing in text or opening in text:
            text = text.replace(opening, OPEN).replace(closing, CLOSE)
    return text
