"""OpenAI's Responses API: requests, answers and stream events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_rl.agents.episode.format import spoken
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.sessions.request import (
    ROLES,
    RequestError,
    TurnReply,
    TurnRequest,
    event,
    function_call,
    objects,
    text_of,
    turn_request,
)

ID = "resp_"
REFUSED = ("background", "conversation", "prompt")
ECHOED: Mapping[str, Any] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True,
    "previous_response_id": None, "reasoning": {"effort": None, "summary": None}, "store": True, "temperature": 1.0,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
    "user": None,
}  # fmt: skip
"""Request parameters that the answer repeats, with their defaults."""
PARTS: Mapping[str, tuple[str, str, str, dict[str, Any]]] = {
    "reasoning": ("summary", "reasoning_summary_part", "reasoning_summary_text", {}),
    "message": ("content", "content_part", "output_text", {"logprobs": []}),
}
"""For each kind of item that has text: the key of its only part, the names of the part's events, and other fields."""


def responses_request(body: Mapping[str, Any]) -> TurnRequest:
    """Read the body of `POST /v1/responses`.

    Raises:
        RequestError: a parameter is not supported.
    """
    for name in REFUSED:
        if body.get(name):
            raise RequestError(f"{name} is not supported: send the conversation as input, or send previous_response_id")
    form = ((body.get("text") or {}).get("format") or {}).get("type", "text")
    if form != "text":
        raise RequestError(f"text.format {form!r} is not supported, because the policy is trained without a grammar")
    instructions = body.get("instructions")
    items = body.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    system = [{"role": "system", "content": instructions}] if instructions else []
    return turn_request(
        body,
        [*system, *_messages(objects(items, "input"))],
        body.get("tool_choice") or "auto",
        body.get("max_output_tokens"),
        continues=str(body.get("previous_response_id") or "").removeprefix(ID),
        instructions=len(system),
    )


def _messages(items: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return the items as messages; the text and the calls of one turn become one message."""
    messages: list[ChatMessage] = []
    turn: ChatMessage | None = None  # the turn to which the next item may belong
    for item in items:
        kind, role = item.get("type", "message"), str(item.get("role"))
        if kind == "reasoning":
            continue
        if kind == "function_call_output":
            output = {"role": "tool", "content": text_of(item.get("output")), "tool_call_id": item.get("call_id")}
            messages.append(output)
        elif kind == "function_call" or (kind == "message" and role == "assistant"):
            text = spoken(text_of(item.get("content")))  # without thoughts, which Pydantic AI sends separately
            if turn is None or (text and turn["content"]):
                turn = {"role": "assistant", "content": ""}
                messages.append(turn)
            if kind == "function_call":
                call = function_call(item.get("call_id"), item.get("name"), item.get("arguments"))
                turn.setdefault("tool_calls", []).append(call)
            else:
                turn["content"] = text or turn["content"]
            continue
        elif kind == "message":
            messages.append({"role": ROLES.get(role, role), "content": text_of(item.get("content"))})
        else:
            raise RequestError(f"input of type {kind!r} is not supported: send messages, function calls and outputs")
        turn = None
    return messages


def responses_answer(reply: TurnReply, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the answer to a Responses API request."""
    cut = reply.finish == "length"
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    return {
        **_head(reply, body, "incomplete" if cut else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _output(reply, "incomplete" if cut else "completed"),
        "usage": usage,
    }


def responses_events(reply: TurnReply, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the events of a stream that replays a finished turn."""
    answer = responses_answer(reply, body)
    begun = _head(reply, body, "in_progress")
    events: list[tuple[str, dict[str, Any]]] = [
        (kind, {"response": begun}) for kind in ("response.created", "response.in_progress")
    ]
    for index, item in enumerate(answer["output"]):
        events += [(kind, {"output_index": index, **more}) for kind, more in _item_events(item)]
    events.append((f"response.{answer['status']}", {"response": answer}))
    for number, (kind, more) in enumerate(events):
        yield event(kind, sequence_number=number, **more)


def _item_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of one item of the output."""
    at: dict[str, Any] = {"item_id": item["id"]}
    if item["type"] == "function_call":
        yield "response.output_item.added", {"item": {**item, "arguments": "", "status": "in_progress"}}
        yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
        done = {**at, "name": item["name"], "arguments": item["arguments"]}
        yield "response.function_call_arguments.done", done
    else:
        key, part_event, text_event, more = PARTS[item["type"]]
        status = {"status": "in_progress"} if "status" in item else {}
        yield "response.output_item.added", {"item": {**item, key: [], **status}}
        (part,) = item[key]
        at[f"{key}_index"] = 0
        yield f"response.{part_event}.added", {**at, "part": {**part, "text": ""}}
        yield f"response.{text_event}.delta", {**at, "delta": part["text"], **more}
        yield f"response.{text_event}.done", {**at, "text": part["text"], **more}
        yield f"response.{part_event}.done", {**at, "part": part}
    yield "response.output_item.done", {"item": item}


def _head(reply: TurnReply, body: Mapping[str, Any], status: str) -> dict[str, Any]:
    repeated = {name: default if body.get(name) is None else body[name] for name, default in ECHOED.items()}
    head = {"id": f"{ID}{reply.id}", "object": "response", "created_at": int(time.time()), "status": status}
    empty: dict[str, Any] = {"error": None, "incomplete_details": None, "output": [], "usage": None}
    return {**head, **empty, "model": str(body.get("model") or ""), **repeated}


def _output(reply: TurnReply, status: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if reply.thoughts:
        summary = [{"type": "summary_text", "text": reply.thoughts}]
        output.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary})
    if reply.text or not reply.calls:
        content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
        message = {"type": "message", "role": "assistant", "status": status, "content": content}
        output.append({"id": f"msg_{reply.id}", **message})
    for number, call in enumerate(reply.calls):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        written = {"call_id": call.id, "name": call.name, "arguments": arguments, "status": "completed"}
        output.append({"id": f"fc_{reply.id}_{number}", "type": "function_call", **written})
    return output
