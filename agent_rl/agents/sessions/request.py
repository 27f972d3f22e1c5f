"""A request for a turn and the answer to it, independent of the API."""

from __future__ import annotations

import ast
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from agent_rl.agents.episode.format import spoken
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.tools.bounded_schema import canonical
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import ToolCall

SAMPLING: Mapping[str, Any] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "logit_bias": {},
}  # fmt: skip
"""Sampling parameters that are ignored in requests, and the values that apply if the run does not set them."""

ROLES = {name: name for name in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}
"""For each role in the APIs, the name of the role in chat templates."""

WRITTEN_CALLS = "Calling tools:\n"
"""The text that smolagents puts before the Python list of a turn's calls when it sends the turn back."""


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        text: the problem.
        status: HTTP status.
        code: the code by which clients recognize the error, for example `context_length_exceeded`.
    """

    def __init__(self, text: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(text)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for one turn.

    Attributes:
        messages: the whole conversation in the form of Chat Completions, but with the roles of chat templates, and call
            arguments as objects. With `continues`, the list has only the messages after the earlier reply.
        tools: function schemas, `{"type": "function", "function": {...}}`; empty if the turn may not call tools.
        model: the model's name in the request.
        max_tokens: maximum number of sampled tokens; None means all tokens that the episode has left.
        stop: strings that end the turn.
        forced: whether the client demands a call, which cannot be enforced.
        sampling: the sampling parameters that the client sets, which are ignored; the run's parameters apply.
        continues: id of the reply whose conversation precedes the messages; empty means that no reply precedes them.
        instructions: the number of leading messages that a later request does not inherit when it continues the reply.

    Raises:
        RequestError: the token limit is not a positive integer, or a stop string is not a string.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[dict[str, Any]] = ()
    model: str = ""
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    forced: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    continues: str = ""
    instructions: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens is not None and (not isinstance(self.max_tokens, int) or self.max_tokens < 1):
            raise RequestError(f"the maximum number of tokens is {self.max_tokens!r}, not an integer above 0")
        if not all(isinstance(text, str) for text in self.stop):
            raise RequestError(f"stop must contain only strings, got {self.stop!r}")


@dataclass(slots=True)
class TurnReply:
    """A finished turn.

    Attributes:
        text: the text without thoughts and calls.
        thoughts: the text of the turn's thoughts.
        calls: the calls, each with an id.
        finish: why the turn ended.
        prompt_tokens: number of tokens before the turn.
        completion_tokens: number of sampled tokens.
        stop: the requested stop string that ended the turn, or None.
        is_fetched: whether a client has received the turn; other turns are not trained on.
    """

    text: str
    thoughts: str
    calls: list[ToolCall]
    finish: Literal["stop", "length", "tool_calls"]
    prompt_tokens: int
    completion_tokens: int
    stop: str | None = None
    is_fetched: bool = False
    id: str = field(default_factory=lambda: uuid4().hex)


def objects(value: Any, name: str) -> Sequence[Mapping[str, Any]]:
    """Check that a value is a list of objects, and return the list.

    Raises:
        RequestError: the value is not a list of objects.
    """
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise RequestError(f"{name} must be a list of objects")
    return value


def turn_request(
    body: Mapping[str, Any], messages: Sequence[ChatMessage], choice: Any, max_tokens: int | None, **more: Any
) -> TurnRequest:
    """Read the fields that all APIs share; the tool choice is `auto`, `none`, or a value that requires a call.

    Raises:
        RequestError: a message has an unknown role, or a tool is not a function with a name; see also `TurnRequest`.
    """
    if unknown := {message["role"] for message in messages}.difference(ROLES.values()):
        raise RequestError(f"a message has the role {unknown.pop()!r}, not one of {', '.join(ROLES)}")
    return TurnRequest(
        messages,
        [] if choice == "none" else [_function_tool(tool) for tool in objects(body.get("tools") or [], "tools")],
        model=str(body.get("model") or ""),
        max_tokens=max_tokens,
        forced=choice not in ("auto", "none"),
        sampling={name: body[name] for name in SAMPLING if body.get(name) is not None},
        **more,
    )


def function_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a call in the form that chat messages use; arguments written as JSON text become an object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"arguments": arguments}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or {}}}


def _function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in the form that chat templates expect."""
    function = tool.get("function", tool)  # only the Chat Completions API nests the function under "function"
    is_function = tool.get("type") in (None, "function") or "input_schema" in tool  # Anthropic's type is custom
    if not is_function or not isinstance(function, Mapping) or not function.get("name"):
        raise RequestError(f"a tool must be a function with a name, got {json.dumps(tool, default=str)[:200]}")
    kept = {"name": "name", "description": "description", "input_schema": "parameters", "parameters": "parameters"}
    return {
        "type": "function",
        "function": {name: function[key] for key, name in kept.items() if function.get(key) is not None},
    }


def event(kind: str, **more: Any) -> str:
    """Return a stream event whose data repeats the event's type."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a string, a list of parts, or None.

    Raises:
        RequestError: a part is not text.
    """
    if content is None or isinstance(content, str):
        return encodable(content or "")  # a JavaScript program may cut an emoji in half
    texts = []
    for part in objects([{"text": part} if isinstance(part, str) else part for part in content], "content"):
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part.get("type") not in ("thinking", "redacted_thinking", "reasoning"):
            raise RequestError(f"content of type {part.get('type')!r} is not supported: send text")
    return encodable("\n".join(texts))


def message_key(message: Mapping[str, Any], stop: Sequence[str] = ()) -> Hashable:
    """Return a key that identifies a message, independent of how a client writes the message.

    The key ignores call ids and the order of keys in arguments, and treats 1.0 as 1, and null content as missing. In a
    policy's turn, the key also ignores thoughts, calls that are written as text, and a stop string at the end.
    """
    text, calls = str(message.get("content") or "").strip(), message.get("tool_calls") or ()
    if message["role"] == "assistant":
        text = spoken(text)
        if WRITTEN_CALLS in text and not calls:
            text, calls = _written_calls(text)
        for end in stop:
            text = text.removesuffix(end).strip()
    written = tuple((call["function"]["name"], canonical(call["function"]["arguments"])) for call in calls)
    return message["role"], text, written


def _written_calls(text: str) -> tuple[str, Sequence[Any]]:
    """Return a turn's text and its calls, except calls that run code, which the text already contains."""
    before, _, listed = text.rpartition(WRITTEN_CALLS)
    try:
        calls = ast.literal_eval(listed)
        return before.strip(), [call for call in calls if call["function"]["name"] != "python_interpreter"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):  # not smolagents' list
        return text, ()
