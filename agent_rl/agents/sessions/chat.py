"""OpenAI's Chat Completions API: requests, answers and stream events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.sessions.request import (
    ROLES,
    RequestError,
    TurnReply,
    TurnRequest,
    function_call,
    objects,
    text_of,
    turn_request,
)

REFUSED = ("response_format", "grammar", "guided_json", "guided_regex", "guided_choice", "structured_outputs")


def chat_request(body: Mapping[str, Any]) -> TurnRequest:
    """Read the body of `POST /v1/chat/completions`.

    Raises:
        RequestError: a parameter is not supported.
    """
    if (body.get("n") or 1) != 1:
        raise RequestError("n must be 1: every sample of a row is a separate episode")
    for name in REFUSED:
        if body.get(name) not in (None, {"type": "text"}):
            raise RequestError(f"{name} is not supported, because the policy is trained without a grammar")
    stop = body.get("stop") or ()
    return turn_request(
        body,
        [_message(message) for message in objects(body.get("messages"), "messages")],
        body.get("tool_choice") or "auto",
        body.get("max_completion_tokens") or body.get("max_tokens"),
        stop=[stop] if isinstance(stop, str) else list(stop),
    )


def chat_answer(reply: TurnReply, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the answer to a Chat Completions API request."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    if reply.thoughts:
        message["reasoning_content"] = reply.thoughts
    choice = {"index": 0, "message": message, "finish_reason": reply.finish, "logprobs": None}
    return {**_head(reply, body, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def chat_events(reply: TurnReply, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the events of a stream that replays a finished turn."""
    head = _head(reply, body, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    if reply.thoughts:
        yield chunk({"reasoning_content": reply.thoughts})
    if reply.text:
        yield chunk({"content": reply.text})
    for number, call in enumerate(_calls(reply)):
        yield chunk({"tool_calls": [{"index": number, **call}]})
    yield chunk({}, reply.finish)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _usage(reply)})}\n\n"
    yield "data: [DONE]\n\n"


def _head(reply: TurnReply, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    model = str(body.get("model") or "")
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": int(time.time()), "model": model}


def _calls(reply: TurnReply) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in reply.calls
    ]


def _usage(reply: TurnReply) -> dict[str, int]:
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _message(message: Mapping[str, Any]) -> ChatMessage:
    role = str(message.get("role"))
    read: ChatMessage = {"role": ROLES.get(role, role), "content": text_of(message.get("content"))}
    if calls := message.get("tool_calls"):
        functions = [(call.get("id"), call.get("function") or {}) for call in calls]
        read["tool_calls"] = [function_call(key, each.get("name"), each.get("arguments")) for key, each in functions]
    for name in ("tool_call_id", "name"):
        if message.get(name):
            read[name] = message[name]
    return read
