"""The syntax of Gemma 4: `<|tool_call>call:f{x:1,name:<|"|>text<|"|>}<tool_call|>`, once for each call.

A value is text between `<|"|>`, an object in braces, a list in brackets, or a bare number, true, false or null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent_rl.agents.syntaxes.reading import read_json, unreadable, without_ends
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["gemma4"]

_OPEN, _CLOSE, _QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_HEAD = re.compile(r"\s*call:([\w.-]+)(?=\{)")
_KEY = re.compile(r'\s*(?:<\|"\|>(.*?)<\|"\|>|([^:,{}\[\]\s]+))\s*:', re.DOTALL)
_BARE = re.compile(r"\s*([^,{}\[\]]*)")
_MAX_DEPTH = 32


def gemma4(text: str, tools: Sequence[ToolSpec]) -> tuple[str, list[ToolCall]]:
    """The text before the first call, and the calls.

    Raises:
        MalformedActionError: for a call that cannot be read.
    """
    content, *bodies = text.split(_OPEN)
    calls = []
    for body in bodies:
        head = _HEAD.match(body)
        if head is None:
            unreadable(f"{_OPEN} must be followed by call:name{{...}}")
        try:
            arguments, end = _object(body, head.end(), 0)
        except (IndexError, ValueError):
            unreadable("its arguments are not closed, or not in the form {key:value}")
        rest = body[end:].strip()
        if rest and not rest.startswith(_CLOSE):
            unreadable(f"the call is not closed by {_CLOSE}")
        calls.append(ToolCall(head[1], arguments))
    return without_ends(content), calls


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    """The object that opens at `at`, and where it ends. IndexError or ValueError: it is none."""
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key = _KEY.match(text, at)
        if key is None or depth > _MAX_DEPTH:
            raise ValueError
        found[key[2] if key[1] is None else key[1]], at = _value(text, key.end(), depth + 1)
        at = _next(text, at, "}")
    return found, at + 1


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        if depth > _MAX_DEPTH:
            raise ValueError
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if text.startswith(_QUOTE, at):
        end = text.index(_QUOTE, at + len(_QUOTE))
        return text[at + len(_QUOTE) : end], end + len(_QUOTE)
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _list(text, at, depth)
    bare = _BARE.match(text, at)
    assert bare is not None
    raw = bare[1].strip()
    try:
        return read_json(raw.lower() if raw.lower() in ("true", "false", "null") else raw), bare.end()
    except ValueError:
        return raw, bare.end()


def _skip(text: str, at: int) -> int:
    while text[at].isspace():
        at += 1
    return at


def _next(text: str, at: int, closing: str) -> int:
    """Past a comma, or at the closing bracket."""
    at = _skip(text, at)
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] != closing:
        raise ValueError
    return at
