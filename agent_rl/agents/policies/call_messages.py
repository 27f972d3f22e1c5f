"""Writes turns that contain tool calls as chat messages, in every form that a chat template may accept.

Chat templates differ: arguments may be an object or text, content may be text or null, and a result may name its call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_rl.trajectory import ToolCall

MARK = "Xq7Mark"
"""The text that marks a place in a made-up turn."""
CALL_ID = "call00000"
"""A call id with nine characters, the only length that Mistral's templates accept."""


def call_turns(calls: Sequence[ToolCall]) -> Iterator[dict[str, Any]]:
    """Yield a turn with these calls in every form that a template may accept."""
    for content, as_text in (("", False), ("", True), (None, False), (None, True)):
        yield _turn(content, [(call.id or _id(n), call.name, call.arguments) for n, call in enumerate(calls)], as_text)


def marked_turns(appended: Sequence[Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield made-up turns with the marker as near to the end as possible, each with the messages that follow it."""
    messages = [dict(message) for message in appended]
    results = [message for message in messages if message["role"] == "tool"]
    turn = {"role": "assistant", "content": MARK}
    if not results:
        yield turn, messages
        return
    named = [{"name": "f", "tool_call_id": _id(n), **result} for n, result in enumerate(results)]
    replaced = iter(named)
    whole = [next(replaced) if message["role"] == "tool" else message for message in messages]
    last = len(named) - 1
    for shown in [messages] if whole == messages else [messages, whole]:
        for content, as_text in (("", False), ("", True), (None, False), (None, True), (MARK, False), (MARK, True)):
            calls = [
                (each["tool_call_id"], each["name"], {"value": MARK if n == last and content != MARK else "x"})
                for n, each in enumerate(named)
            ]
            yield _turn(content, calls, as_text), shown
    yield turn, messages


def _turn(content: str | None, calls: Sequence[tuple[str, str, Any]], as_text: bool) -> dict[str, Any]:
    written = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments},
        }
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": written}


def _id(number: int) -> str:
    return f"{CALL_ID[:-1]}{number % 10}"
