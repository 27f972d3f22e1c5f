"""Schemas of an OpenAPI document as self-contained JSON schemas of draft 2020-12.

References are replaced by what they refer to; a schema that contains itself, and all schemas when replacing them would
give too large a result, go below `$defs`. Only what a request may contain is kept: no `readOnly` property, and no
keyword that a validator does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import Any
from urllib.parse import unquote

__all__ = ["Schemas", "TooLarge", "Unsupported", "numbered", "resolve"]

MAX_NODES = 300
"""Schemas in one tool's parameters beyond which references are kept."""

_KEPT = frozenset(
    (
        *("type", "enum", "const", "default", "description", "format", "multipleOf", "maximum", "minimum", "pattern"),
        *("exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength", "maxItems", "minItems", "uniqueItems"),
        *("maxContains", "minContains", "maxProperties", "minProperties", "required", "dependentRequired"),
    )
)
_OF_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_OF_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_ANNOTATIONS = frozenset(("default", "description"))


class Unsupported(Exception):
    """Something that has no counterpart; the text says what."""


class TooLarge(Exception):
    """Replacing all references gives more than `MAX_NODES` schemas."""


def resolve(document: Mapping[str, Any], node: Any) -> Any:
    """What `node` refers to, if it is a reference.

    Raises:
        Unsupported: the reference leads nowhere, in a circle, or out of the document.
    """
    seen: set[str] = set()
    while isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
        reference = node["$ref"]
        if reference in seen:
            raise Unsupported(f"the reference {reference!r} leads in a circle")
        seen.add(reference)
        node = _lookup(document, reference)
    return node


class Schemas:
    """The schemas of one tool.

    Args:
        document: what references lead into.
        inline: replace references that do not lead in a circle.
    """

    def __init__(self, document: Mapping[str, Any], *, inline: bool) -> None:
        self._document = document
        self._inline = inline
        self._names: dict[str, str] = {}  # reference -> name below $defs
        self._nodes = 0

    def translate(self, schema: Any) -> dict[str, Any]:
        """The schema; its top is never a reference.

        Raises:
            Unsupported: for a reference that cannot be followed, or a schema that is no mapping.
            TooLarge: replacing the references gives too much.
        """
        within: tuple[str, ...] = ()
        if isinstance(schema, Mapping) and set(schema) == {"$ref"}:
            within, schema = (schema["$ref"],), resolve(self._document, schema)
        result = self._schema(schema, within)
        return result if isinstance(result, dict) else {}

    def definitions(self) -> dict[str, Any]:
        """What belongs below `$defs`, once all schemas are translated."""
        result: dict[str, Any] = {}
        while missing := [reference for reference, name in self._names.items() if name not in result]:
            target = _lookup(self._document, missing[0])
            result[self._names[missing[0]]] = self._schema(target, (missing[0],))
        return result

    def _schema(self, schema: Any, within: tuple[str, ...]) -> Any:
        """One schema; `within` are the references that led to it."""
        self._nodes += 1
        if self._inline and self._nodes > MAX_NODES:
            raise TooLarge
        if not isinstance(schema, Mapping):
            if isinstance(schema, bool):
                return schema
            raise Unsupported(f"a schema is no mapping: {schema!r}")
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema, within)
        result = {key: value for key, value in schema.items() if key in _KEPT}
        for key in _OF_ONE:
            if key in schema:
                result[key] = self._schema(schema[key], within)
        for key in _OF_MANY:
            if isinstance(schema.get(key), list):
                result[key] = [self._schema(part, within) for part in schema[key]]
        for key in _BY_NAME:
            if isinstance(schema.get(key), Mapping):
                result[key] = {str(name): self._schema(part, within) for name, part in schema[key].items()}
        self._without_read_only(schema, result)
        return _modern(result, nullable=schema.get("nullable") is True)

    def _reference(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
        reference = schema["$ref"]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _lookup(self._document, reference)
        if self._inline and reference not in within:
            result = self._schema(target, (*within, reference))
        else:
            result = {"$ref": f"#/$defs/{self._name(reference)}"}
        beside = self._schema(beside, within) if beside else {}
        if isinstance(result, bool) or set(beside) - _ANNOTATIONS:
            return {"allOf": [result], **beside}
        return {**result, **beside}

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2]) or "schema"
            taken = set(self._names.values())
            self._names[reference] = next(free for free in numbered(name) if free not in taken)
        return self._names[reference]

    def _without_read_only(self, schema: Mapping[str, Any], result: dict[str, Any]) -> None:
        given = schema.get("properties")
        for name, part in given.items() if isinstance(given, Mapping) else ():
            part = resolve(self._document, part)
            if isinstance(part, Mapping) and part.get("readOnly") is True:
                del result["properties"][str(name)]
                if isinstance(result.get("required"), list):
                    result["required"] = [other for other in result["required"] if other != name]


def _modern(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """OpenAPI 3.0's dialect and pydantic's way of writing null, as draft 2020-12 says them."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if not isinstance(schema.get("required", []), list):  # draft 3's, still seen
        del schema["required"]
    if "pattern" in schema and not _compiles(schema["pattern"]):  # JavaScript's dialect
        del schema["pattern"]
    if nullable:
        return _or_null(schema)
    branches = schema.get("anyOf") or []
    others = [part for part in branches if part != {"type": "null"}]
    if len(others) == 1 and len(branches) == 2 and isinstance(others[0], dict) and "type" in others[0]:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        if not set(rest) - _ANNOTATIONS:
            return {**_or_null(others[0]), **rest}
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = schema.get("type")
    if kinds is None or "const" in schema:
        annotations = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
        rest = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
        return {"anyOf": [rest, {"type": "null"}], **annotations} if rest else schema
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    result = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        result["enum"] = [*schema["enum"], None]
    return result


def _lookup(document: Mapping[str, Any], reference: str) -> Any:
    if not reference.startswith("#/"):
        raise Unsupported(f"the reference {reference!r} leads out of the document")
    node: Any = document
    for part in reference[2:].split("/"):
        part = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            raise Unsupported(f"the reference {reference!r} leads nowhere")
    return node


def numbered(name: str) -> Iterator[str]:
    """The name itself, then name_2, name_3, ..."""
    return chain([name], (f"{name}_{number}" for number in count(2)))


def _compiles(pattern: Any) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError):
        return False
    return True
