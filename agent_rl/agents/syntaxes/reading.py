"""Helpers for tool-call syntaxes: they parse JSON, and convert values to the types in a tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.arguments import json_type, json_types
from agent_rl.trajectory import ToolCall

_MAX_DEPTH = 64
"""Maximum nesting depth of arguments; a deeper value could not be stored as JSON again."""

_END = re.compile(r"(?:<\|\w+\|>|</s>|<\uff5cend\u2581of\u2581sentence\uff5c>|<turn\|>|\[e~\[)\Z")
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
        ValueError: the text is not JSON, is nested too deeply, or contains values that JSON cannot represent (infinity,
            a lone surrogate).
    """
    try:
        value = json.loads(raw, strict=False)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deeper(value, _MAX_DEPTH):
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
    return value


def read_call_json(raw: str, what: str = "it") -> Any:
    """Parse a JSON value in a tool call.

    Raises:
        MalformedActionError: `read_json` rejects the text.
    """
    try:
        return read_json(raw)
    except ValueError as error:
        unreadable(f"{what} is not valid JSON ({error})")


def call_from(value: Any, *arguments_keys: str) -> ToolCall:
    """Return the call that a JSON object describes; arguments may also be JSON within a string.

    Args:
        value: the object.
        arguments_keys: the possible names of the key that holds the arguments.

    Raises:
        MalformedActionError: the value does not describe a call.
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
    """Return the JSON types of each parameter of a tool; a set is empty if the parameter's schema has no type."""
    properties: Mapping[str, Any] = next(
        (tool.parameters.get("properties", {}) for tool in tools if tool.name == name), {}
    )
    return {key: set(json_types(schema)) for key, schema in properties.items()}


def typed(raw: str, types: set[str] | None) -> Any:
    """Convert an argument written as plain text to a type that its schema allows, or keep the text.

    Args:
        raw: the text.
        types: the parameter's types, or None for an unknown parameter.
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
    return raw if types is not None and "string" in types and json_type(value) not in types else value


def without_ends(text: str) -> str:
    """Return an answer without the special tokens that ended its turn."""
    text = text.rstrip()
    while end := _END.search(text[-_LONGEST_END:]):
        text = text[: -len(end[0])].rstrip()
    return text.lstrip()


def _is_deeper(value: Any, levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(child, levels - 1) for child in children)
