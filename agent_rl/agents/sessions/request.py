"""A request for a turn and its answer, independent of the API in which they are written."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.trajectory import ToolCall

__all__ = ["RequestError", "TurnReply", "TurnRequest", "message_key", "text_of"]

ROLES = {"developer": "system"}
"""Roles of the APIs with the name that chat templates have for them."""


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        text: what is wrong.
        status: HTTP status.
        code: the code by which clients recognise the error, for example `context_length_exceeded`.
    """

    def __init__(self, text: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(text)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for one turn.

    Attributes:
        messages: the whole conversation in the form of chat completions, with the roles of chat templates; arguments of
            calls are objects.
        tools: function schemas, `{"type": "function", "function": {...}}`.
        model: the name of the model in the request.
        max_tokens: maximum number of sampled tokens; None: as many as the episode has left.
        stop: strings that end the turn.
        without_tools: whether the turn may not call tools (`tool_choice` none).
        forced: whether the client demands a call, which cannot be enforced.
        ignored: names of sampling parameters that differ from the run's, which apply instead.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[dict[str, Any]] = ()
    model: str = ""
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    without_tools: bool = False
    forced: bool = False
    ignored: Sequence[str] = ()


@dataclass(slots=True)
class TurnReply:
    """A finished turn.

    Attributes:
        text: the text without thoughts and calls.
        thoughts: the text of its thoughts.
        calls: the calls, each with an id.
        finish: why the turn ended.
        prompt_tokens: tokens before the turn.
        completion_tokens: sampled tokens.
    """

    text: str
    thoughts: str
    calls: list[ToolCall]
    finish: Literal["stop", "length", "tool_calls"]
    prompt_tokens: int
    completion_tokens: int
    id: str = field(default_factory=lambda: uuid4().hex)


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, parts, or None.

    Raises:
        RequestError: a part is not text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif not (isinstance(part, Mapping) and part.get("type") in ("thinking", "redacted_thinking", "reasoning")):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RequestError(f"content of type {kind!r} is not supported: send text")
    return "\n".join(texts)


def message_key(message: Mapping[str, Any]) -> Hashable:
    """Return what identifies a message, however a client writes it.

    Ids of calls, the order of keys in arguments, thoughts, and null or missing content make no difference.
    """
    calls = tuple(
        (call["function"]["name"], json.dumps(call["function"]["arguments"], sort_keys=True, default=str))
        for call in message.get("tool_calls") or ()
    )
    return message["role"], str(message.get("content") or "").strip(), calls
