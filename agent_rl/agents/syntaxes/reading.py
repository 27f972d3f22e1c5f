"""Helpers for the syntaxes of tool calls: JSON that can be stored again, and values by the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["call_from", "parameter_types", "read_call_json", "read_json", "typed", "unreadable", "without_ends"]

_MAX_DEPTH = 64
"""Maximum nesting depth of arguments: a deeper value could not be stored as JSON again."""

_END = re.compile(r"<\|\w+\|>|</s>|<\uff5cend\u2581of\u2581sentence\uff5c>|<turn\|>|\[e~\[")
_LONGEST_END = 40
_LITERALS = {"true": True, "false": False, "null": None, "none": None}


def unreadable(why: str) -> NoReturn:
    """Raise the error that tells the policy why its call could not be read.

    Raises:
        MalformedActionError: always.
    """
    raise MalformedActionError(f"I could not read the tool call: {why}. No tool was called; write the call again.")


def read_json(raw: str) -> Any:
    """Parse a JSON value that can be stored as JSON again; raw line breaks in its strings are accepted.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has values that JSON cannot have (infinity, a lone
            surrogate).
    """
    try:
        value = json.loads(raw, strict=False)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level := [child for item in level for child in _children(item)]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
    return value


def read_call_json(raw: str, what: str = "it") -> Any:
    """Parse a JSON value of a call.

    Raises:
        MalformedActionError: `read_json` rejects it.
    """
    try:
        return read_json(raw)
    except ValueError as error:
        unreadable(f"{what} is not valid JSON ({error})")


def call_from(value: Any, *arguments_keys: str) -> ToolCall:
    """Return the call that a JSON object describes; arguments may also be JSON within a string.

    Args:
        value: the object.
        arguments_keys: the accepted keys of the arguments.

    Raises:
        MalformedActionError: the value is not such an object.
    """
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        unreadable('it must be a JSON object with a "name"')
    arguments = next((value[key] for key in arguments_keys if key in value), None)
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            arguments = ""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        unreadable(f'"{arguments_keys[0]}" must be a JSON object')
    identifier = value.get("id")
    return ToolCall(name, arguments, identifier if isinstance(identifier, str) else "")


def parameter_types(name: str, tools: Sequence[ToolSpec]) -> dict[str, set[str]]:
    """Return the JSON types of each parameter of a tool; an empty set if its schema sets none."""
    properties: Mapping[str, Any] = next(
        (tool.parameters.get("properties", {}) for tool in tools if tool.name == name), {}
    )
    return {key: _types(schema) for key, schema in properties.items()}


def typed(raw: str, types: set[str] | None) -> Any:
    """Convert an argument written as plain text to a type that its schema allows, or keep the text.

    Args:
        raw: the text.
        types: the parameter's types; None for an unknown parameter.
    """
    if types is not None and (not types or types == {"string"}):
        return raw
    stripped = raw.strip()
    if stripped.lower() in _LITERALS:
        value: Any = _LITERALS[stripped.lower()]
    else:
        try:
            value = read_json(stripped)
        except ValueError:
            return raw
    return raw if types is not None and "string" in types and _type_of(value) not in types else value


def without_ends(text: str) -> str:
    """Return an answer without the special tokens that ended its turn."""
    end = len(text)
    while end:
        if text[end - 1].isspace():
            end -= 1
            continue
        near = max(0, end - _LONGEST_END)
        start = max(text.rfind("<", near, end), text.rfind("[e", near, end))
        if start < 0 or not _END.fullmatch(text, start, end):
            break
        end = start
    return text[:end].strip()


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set(declared or ())
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _types(part)
    return types


def _type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
