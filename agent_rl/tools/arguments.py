"""Checks a tool's JSON schema once, then coerces and validates the arguments of its calls.

Coercion never loses information: `"3"` becomes 3 where the schema requires an integer, but `"3.7"` does not change. A
value that already has an allowed type is never changed.
"""

from __future__ import annotations

import copy
import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any

import regex
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from agent_rl.errors import InvalidArgumentsError, ToolTimeoutError, did_you_mean
from agent_rl.settings.user_code import one_line
from agent_rl.tools.bounded_schema import time_limit
from agent_rl.tools.truncation import shortened
from agent_rl.work.concurrency import gate, in_thread

CHECK_S = 5.0
"""Time limit for checking the arguments of one call, in seconds; a tool's own limit may be shorter."""
MAX_SIZE = 1_000_000
"""Maximum size of a call's arguments, in characters of JSON."""
_SMALL = 10_000  # arguments with more characters than this are checked in a thread from the start
_QUICK_S = 0.02  # if a check of small arguments takes more seconds than this, a thread repeats the check
_AT_ONCE = 8
_MAX_ERRORS = 3
_MAX_ERROR = 200  # maximum number of characters of an exception that a message to the policy quotes
_MAX_SHOWN = 120  # maximum number of characters of a value that a message to the policy quotes
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")
_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}

_FORMATS = FormatChecker()  # calls match patterns with `regex`, which reads more of JavaScript's patterns than `re`
_FORMATS.checkers["regex"] = lambda pattern: regex.compile(pattern) is not None, (regex.error, TypeError)
_SCHEMA_VALIDATOR = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=_FORMATS)
_SHORT_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
"""JSON types for the names of Python types that the short form of a schema may contain."""
_DATA = ("enum", "const", "default", "required", "dependentRequired")
"""JSON Schema keywords whose values are not schemas."""


def schema_problem(parameters: Any) -> tuple[str, str] | None:
    """Return (problem, remedy) if a tool's `parameters` cannot be used, otherwise None."""
    if not isinstance(parameters, Mapping):
        return f"expected a JSON schema of type object, got {parameters!r}", "Write a mapping with type and properties"
    if parameters.get("type") != "object":
        return f"type must be 'object', got {parameters.get('type')!r}", "Write `type: object` and list each property"
    properties = parameters.get("properties", {})
    if not isinstance(properties, Mapping):
        return f"properties must be a mapping, got {properties!r}", "Write one key for each argument"
    for error in _SCHEMA_VALIDATOR.iter_errors(parameters):
        return f"not a JSON schema: at {_path(error) or 'the top'}: {error.message}", "See json-schema.org"
    for name in parameters.get("required", []):
        if name not in properties:
            return f"required names {name!r}, which is not in properties", did_you_mean(name, properties)
    text = json.dumps(parameters, default=str)
    if '"unevaluatedProperties"' in text and '"patternProperties"' in text:
        return "patterns under unevaluatedProperties have no time limit", "Use additionalProperties"
    return _reference_problem(parameters)


def full_schema(parameters: Any) -> Any:
    """Return the JSON schema for a mapping of arguments to types, such as `{query: string, top_k: {type: integer}}`.

    Every argument is required, unless it has a default or `required: false`. A JSON schema, or a value of another kind,
    is returned unchanged.
    """
    if not isinstance(parameters, Mapping) or not parameters or "properties" in parameters:
        return parameters
    if parameters.get("type") in _JSON_TYPES or not all(isinstance(part, str | dict) for part in parameters.values()):
        return parameters
    properties = {key: {"type": part} if isinstance(part, str) else dict(part) for key, part in parameters.items()}
    required = []
    for name, schema in properties.items():
        is_required = schema.pop("required") if isinstance(schema.get("required"), bool) else "default" not in schema
        required += [name] if is_required else []
        if isinstance(kind := schema.get("type"), str):
            schema["type"] = _SHORT_TYPES.get(kind, kind)
    return {"type": "object", "properties": properties, "required": required}


def rewritten(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a JSON schema with `change` applied to each schema in it, starting with the innermost."""
    if isinstance(schema, list):
        return [rewritten(part, change) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    copied: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "dependentSchemas", "$defs"):
            copied[key] = {str(name): rewritten(part, change) for name, part in value.items()}
        else:
            copied[key] = value if key in _DATA else rewritten(value, change)
    return change(copied)


async def checked(name: str, validator: Validator, arguments: Any, limit_s: float) -> dict[str, Any]:
    """Check the arguments of a call without blocking other trajectories; see `check_arguments`.

    Large arguments and slow checks are moved to a thread.

    Args:
        name: the tool's name, for the message.
        validator: the validator of the tool's parameters.
        arguments: the policy's arguments, parsed from JSON.
        limit_s: time limit for one call to the tool, in seconds.

    Raises:
        InvalidArgumentsError: an argument is wrong; the text names the argument and the expected value.
        ToolTimeoutError: the check takes too long.
    """
    limit_s = min(limit_s, CHECK_S)
    try:
        size = len(json.dumps(arguments, ensure_ascii=False, default=str))
        if size > MAX_SIZE:
            raise InvalidArgumentsError(f"the arguments of {name} are too large: {MAX_SIZE:,} characters are read")
        if size <= _SMALL:
            with suppress(TimeoutError):
                return _within(_QUICK_S, name, validator, arguments)
        async with gate("agent_rl.tools.arguments", _AT_ONCE):
            return await in_thread(_within, limit_s, name, validator, arguments)
    except TimeoutError:
        problem = f"{name} did not finish within {limit_s:g} s: checking its arguments takes too long"
        raise ToolTimeoutError(problem) from None
    except RecursionError:
        raise InvalidArgumentsError(f"invalid arguments for {name}: nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as error:  # such as for a number with thousands of digits
        problem = shortened(one_line(error), _MAX_ERROR)
        raise InvalidArgumentsError(f"the arguments of {name} cannot be read: {problem}") from None


def _within(limit_s: float, name: str, validator: Validator, arguments: Any) -> dict[str, Any]:
    with time_limit(limit_s):
        return check_arguments(name, validator, arguments)


def check_arguments(name: str, validator: Validator, arguments: Any) -> dict[str, Any]:
    """Return a copy of the arguments, coerced to the types of the schema where this loses no information.

    Args:
        name: the tool's name, for the message.
        validator: the validator of the tool's parameters.
        arguments: the policy's arguments. The trajectory keeps the originals, so a tool may change its copy.

    Raises:
        InvalidArgumentsError: an argument is wrong; the text names the argument and the expected value.
    """
    schema: Any = validator.schema
    checked: dict[str, Any] = coerce(schema, copy.deepcopy(arguments))
    errors = list(islice(validator.iter_errors(checked), _MAX_ERRORS))
    if not errors:
        return checked
    problems = "; ".join(dict.fromkeys(_explain(error) for error in errors))
    raise InvalidArgumentsError(f"invalid arguments for {name}: {problems}. {_signature(name, schema)}")


def coerce(schema: Any, value: Any) -> Any:
    """Convert `value` to the type in `schema` if the conversion loses nothing, otherwise return it unchanged."""
    if not isinstance(schema, Mapping):
        return value
    if kinds := json_types(schema):
        value = _coerce_type(kinds, value)
    if isinstance(value, dict) and (properties := schema.get("properties")):
        changed = {key: new for key, old in value.items() if (new := coerce(properties.get(key), old)) is not old}
        return {**value, **changed} if changed else value
    if isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        return [coerce(items, item) for item in value]
    return value


def json_types(schema: Any) -> list[str]:
    """Return the JSON types that a schema and its alternatives allow, or an empty list if all types are allowed."""
    if not isinstance(schema, Mapping):
        return []
    if kinds := schema.get("type"):
        return [kinds] if isinstance(kinds, str) else list(kinds)
    types: dict[str, None] = {}
    for alternative in schema.get("anyOf") or schema.get("oneOf") or ():
        kinds = json_types(alternative)
        if not kinds:
            return []
        types.update(dict.fromkeys(kinds))
    return list(types)


def _coerce_type(kinds: list[str], value: Any) -> Any:
    if type(value) is float and "integer" in kinds and "number" not in kinds:
        return int(value) if value.is_integer() else value
    if any(_has_type(kind, value) for kind in kinds):
        return value
    if type(value) is int and "string" in kinds:
        return str(value) if value.bit_length() < 1024 else value
    if not isinstance(value, str):
        return value
    text = value.strip()
    for kind in kinds:
        new = _read(kind, text)
        if new is not None:
            return new
    return None if "null" in kinds and text == "null" else value


def _read(kind: str, text: str) -> Any:
    """Convert `text` to the JSON type `kind`; return None if it has another type or would lose digits."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        number = int(text) if _INTEGER.fullmatch(text) else float(text)
        return number if math.isfinite(number) and Decimal(text) == Decimal(repr(number)) else None
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in ("array", "object") and text[:1] in ("[", "{"):
        try:
            decoded = json.loads(text)
        except ValueError:
            return None
        return decoded if _has_type(kind, decoded) else None
    return None


def _has_type(kind: str, value: Any) -> bool:
    if isinstance(value, bool):  # a bool is an int in Python, but not in JSON
        return kind == "boolean"
    return isinstance(value, _JSON_TYPES.get(kind, ()))


def _explain(error: ValidationError) -> str:
    """Describe one problem to the policy. Values are shortened, unlike in jsonschema's own messages."""
    where = f"argument '{_path(error)}'" if error.absolute_path else "the arguments"
    rule = error.validator
    expected: Any = error.validator_value
    got: Any = error.instance
    if rule == "required":
        missing = [name for name in expected if name not in got]
        keys = ", ".join(shortened(str(key), _MAX_SHOWN) for key in islice(got, 8))
        names = f"given: {keys}" if got else "none given"
        inside = f" in '{_path(error)}'" if error.absolute_path else ""
        return f"missing {', '.join(repr(name) for name in missing)}{inside} ({names})"
    if rule in ("anyOf", "oneOf") and error.context:
        types = json_types(error.schema)
        if types and not any(_has_type(kind, got) for kind in types):
            return f"{where}: expected {' or '.join(types)}, got {json_type(got)} {_shown(got)}"
        return _explain(max(error.context, key=lambda inner: (len(inner.absolute_path), inner.validator != "type")))
    if rule == "additionalProperties" and isinstance(got, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        extra = shortened(next((str(key) for key in got if key not in known), ""), _MAX_SHOWN)
        return f"{where}: unknown name '{extra}'. {did_you_mean(extra, known)}".rstrip(".")
    if rule == "type":
        kinds = expected if isinstance(expected, str) else " or ".join(expected)
        return f"{where}: expected {kinds}, got {json_type(got)} {_shown(got)}"
    if rule == "enum":
        is_short = isinstance(got, str) and len(got) <= _MAX_SHOWN
        matches = difflib.get_close_matches(got, map(str, expected), n=1) if is_short else []
        hint = f" (did you mean '{shortened(matches[0], _MAX_SHOWN)}'?)" if matches else ""
        return f"{where}: expected one of {_shown(expected)}, got {_shown(got)}{hint}"
    return f"{where}: expected {rule} {_shown(expected)}, got {_shown(got)}"


def _signature(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    parts = []
    for key, value in schema.get("properties", {}).items():
        kind = " or ".join(json_types(value)) or "any"
        parts.append(f"{key} ({kind}, {'required' if key in required else 'optional'})")
    return f"Arguments of {name}: {', '.join(parts) or 'none'}."


def _path(error: ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    return next((kind for kind in _JSON_TYPES if _has_type(kind, value)), type(value).__name__)


def _shown(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, default=str), _MAX_SHOWN)


def _reference_problem(parameters: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (problem, remedy) for a `$ref` without a target, which would fail only in the first call that uses it."""
    resource = Resource.from_contents(parameters, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(resource)
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(parameters, ensure_ascii=False, default=str)):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return f"$ref {reference!r} has no target", "Put the definition under $defs and refer to '#/$defs/<name>'"
    return None
