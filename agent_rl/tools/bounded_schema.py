"""JSON Schema validators with a time limit that holds for any schema, pattern and value.

The limit is checked before each keyword and during each search for a pattern. `schema_problem` rejects schemas with
both `unevaluatedProperties` and `patternProperties`, because jsonschema searches for their patterns without a limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

_deadline: ContextVar[float] = ContextVar("agent_rl_validation_deadline", default=float("inf"))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Make validators raise TimeoutError once the time limit has passed."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@cache
def bounded(draft: Any = Draft202012Validator) -> Any:
    """Return the validator class of a JSON Schema draft, extended so that it respects `time_limit`."""
    own = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    checks = {name: _limited(check) for name, check in (draft.VALIDATORS | own).items()}
    checks["additionalProperties"] = _without_patterns(checks["additionalProperties"])
    return extend(draft, checks)  # type: ignore[no-untyped-call]


def canonical(value: Any) -> str:
    """Return a string that is the same for equal JSON data, where 1.0 equals 1."""
    return json.dumps(json.loads(json.dumps(value, default=str), parse_float=_number), sort_keys=True)


def _number(text: str) -> float:
    return int(number) if (number := float(text)).is_integer() else number


def _left() -> float:
    """Return the number of seconds left; raise TimeoutError if no time is left."""
    if (left := _deadline.get() - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _limited(check: Callable[..., Any]) -> Callable[..., Any]:
    def limited(validator: Any, *arguments: Any) -> Any:
        _left()
        return check(validator, *arguments)

    return limited


def _occurs(pattern: str, text: str) -> bool:
    left = _left()
    try:
        match = regex.search(pattern, text, timeout=None if left == float("inf") else left, concurrent=True)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return match is not None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _occurs(pattern, instance):
        yield ValidationError(f"does not match {pattern!r}")


def _pattern_properties(
    validator: Any, properties: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, subschema in properties.items():
            for name, value in instance.items():
                if _occurs(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _without_patterns(check: Callable[..., Any]) -> Callable[..., Any]:
    """Let `additionalProperties` treat the names that match `patternProperties` as properties."""

    def replaced(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        if (patterns := schema.get("patternProperties")) and validator.is_type(instance, "object"):
            matching = {name: True for name in instance if any(_occurs(pattern, name) for pattern in patterns)}
            schema = {"properties": {**schema.get("properties", {}), **matching}}
        return check(validator, allowed, instance, schema)

    return replaced


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `uniqueItems` in linear time; jsonschema needs quadratic time for objects."""
    if wanted and validator.is_type(instance, "array") and len(set(map(canonical, instance))) < len(instance):
        yield ValidationError("it has non-unique elements")
