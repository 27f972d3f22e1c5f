"""Anthropic's Messages API: requests, answers, stream events and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.sessions.request import (
    RequestError,
    TurnReply,
    TurnRequest,
    event,
    function_call,
    objects,
    text_of,
    turn_request,
)

CHANGES = "x-anthropic-billing-header"
"""The start of the part of Claude Code's system prompt that changes with each request."""
ERRORS = {400: "invalid_request_error", 401: "authentication_error", 503: "api_error"}
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
ERROR = "Error: "
"""The text that precedes the text of a tool result marked with `is_error`."""


def messages_request(body: Mapping[str, Any]) -> TurnRequest:
    """Read the body of `POST /v1/messages`, or of `POST /v1/messages/count_tokens`.

    Raises:
        RequestError: a parameter is not supported.
    """
    if body.get("output_format") or (body.get("output_config") or {}).get("format"):
        raise RequestError("structured outputs are not supported, because the policy is trained without a grammar")
    system = text_of([block for block in _blocks(body.get("system")) if not text_of([block]).startswith(CHANGES)])
    messages = [{"role": "system", "content": system}] if system else []
    conversation = objects(body.get("messages"), "messages")
    for role, group in groupby(conversation, lambda message: str(message.get("role"))):
        blocks = [block for message in group for block in _blocks(message.get("content"))]
        messages += _messages(role, blocks)
    if conversation and conversation[-1].get("role") == "assistant":
        raise RequestError("prefill is not supported: the conversation must end with a user message")
    choice = (body.get("tool_choice") or {}).get("type", "auto")
    stop = [text for text in body.get("stop_sequences") or () if text]
    return turn_request(body, messages, choice, body.get("max_tokens"), stop=stop)


def _blocks(content: Any) -> Sequence[Mapping[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return objects(content, "content")


def _messages(role: str, blocks: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return one message per tool result, followed by one message with all other blocks."""
    messages: list[ChatMessage] = []
    calls, others = [], []
    for block in blocks:
        if block.get("type") == "tool_result":
            text = text_of(block.get("content"))
            text = ERROR + text if block.get("is_error") and not text.startswith(ERROR) else text
            messages.append({"role": "tool", "content": text, "tool_call_id": block.get("tool_use_id")})
        elif block.get("type") == "tool_use":
            calls.append(function_call(block.get("id"), block.get("name"), block.get("input")))
        else:
            others.append(block)
    if others or calls or not messages:
        messages.append({"role": role, "content": text_of(others), **({"tool_calls": calls} if calls else {})})
    return messages


def messages_answer(reply: TurnReply, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the answer to a Messages API request."""
    usage = {"input_tokens": reply.prompt_tokens, "output_tokens": reply.completion_tokens}
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": str(body.get("model") or ""),
        "content": _content(reply, body),
        "stop_reason": "stop_sequence" if reply.stop else STOP_REASONS[reply.finish],
        "stop_sequence": reply.stop,
        "usage": {**usage, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }


def messages_events(reply: TurnReply, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the events of a stream that replays a finished turn."""
    answer = messages_answer(reply, body)
    ended = {name: answer[name] for name in ("stop_reason", "stop_sequence")}
    usage = {**answer["usage"], "output_tokens": 0}
    begun = {**answer, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", message=begun)
    empty: dict[str, Any]
    for index, block in enumerate(answer["content"]):
        if block["type"] == "tool_use":
            empty, partial = {"input": {}}, json.dumps(block["input"], ensure_ascii=False)
            deltas = [{"type": "input_json_delta", "partial_json": partial}]
        elif block["type"] == "thinking":
            empty = {"thinking": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            empty, deltas = {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        yield event("content_block_start", index=index, content_block={**block, **empty})
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    yield event("message_delta", delta=ended, usage=answer["usage"])
    yield event("message_stop")


def messages_error(error: RequestError) -> dict[str, Any]:
    """Return the body of an error."""
    text = f"prompt is too long: {error}" if error.code == "context_length_exceeded" else str(error)
    return {"type": "error", "error": {"type": ERRORS[error.status], "message": text}}


def _content(reply: TurnReply, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a turn, including its thoughts if the client requests thoughts."""
    content: list[dict[str, Any]] = []
    if reply.thoughts and (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        content.append({"type": "thinking", "thinking": reply.thoughts, "signature": reply.id})
    if reply.text or not reply.calls:
        content.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
    return content
