"""One operation of an OpenAPI document as an endpoint of `http`, with its schemas in today's JSON schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import unquote

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import validated
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.builtin._http.request import HttpEndpoint, default_place

__all__ = ["Endpoint", "Operation", "Unsupported", "free_name", "resolve"]

_IGNORED_HEADERS = ("accept", "authorization", "content-type")  # OpenAPI's rule: they are given elsewhere
_STYLES = {"path": "simple", "query": "form", "header": "simple"}
_JSON_TYPES = ("application/json", "application/*", "*/*")
_PLAIN_OBJECT = {"type", "properties", "required", "additionalProperties", "description", "default"}
_UNUSED = (
    "title",
    "example",
    "examples",
    "xml",
    "externalDocs",
    "discriminator",
    "deprecated",
    "nullable",
    "writeOnly",
)
"""Keywords of a schema that a validator does not know and a policy does not need."""
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_VALUES = ("enum", "const", "default", "required", "dependentRequired")


class Unsupported(Exception):
    """Something that has no counterpart; the text says what."""


@dataclass(frozen=True)
class Operation:
    """A method of a path, with the parameters of its path among its own."""

    name: str
    """Of the tool."""
    method: str
    path: str
    node: Mapping[str, Any]

    @property
    def label(self) -> str:
        """For example `GET /items`."""
        return f"{self.method} {self.path}"


class Endpoint:
    """One operation as an endpoint of `http`: its parameters and its body are one object of arguments."""

    def __init__(self, document: Mapping[str, Any], operation: Operation, auth: Mapping[str, str] | None) -> None:
        self._document, self._operation = document, operation
        self._taken: set[tuple[str, str]] = set()
        """(place, name) pairs that the credentials fill; such a parameter is no argument."""
        if auth is not None:
            name = auth.get("name", "authorization")
            self._taken = {("query", name) if auth["type"] == "query" else ("header", name.lower())}
        self._schemas = _Schemas(document)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._places: dict[str, str] = {}
        self._notes: list[str] = []

    def read(self) -> tuple[dict[str, Any], list[str]]:
        """The endpoint, and the parts of the operation that it leaves out.

        Raises:
            Unsupported: it cannot be called without what is missing.
        """
        node, method, path = self._operation.node, self._operation.method, self._operation.path
        if node.get("deprecated") is True:
            raise Unsupported("deprecated")
        if node.get("servers"):
            raise Unsupported("has servers of its own")
        self._read_parameters(node.get("parameters") or [])
        if body := resolve(self._document, node.get("requestBody")):
            self._read_body(body)
        schema: dict[str, Any] = {"type": "object", "properties": self._properties, "required": self._required}
        definitions = self._schemas.definitions
        endpoint: dict[str, Any] = {
            "name": self._operation.name,
            "description": _description(node) or self._operation.label,
            "method": method,
            "path": path,
            "places": self._places,
            "parameters": {**schema, "$defs": definitions} if definitions else schema,
        }
        if problem := schema_problem(endpoint["parameters"]):
            raise Unsupported(f"its schema cannot be used: {problem[0]}")
        try:
            validated(HttpEndpoint, endpoint).request(self._taken)
        except ConfigError as error:
            raise Unsupported(str(error)) from None
        return endpoint, self._notes

    def _read_parameters(self, nodes: list[Any]) -> None:
        parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
        for node in nodes:
            node = resolve(self._document, node)
            parameters[str(node.get("in")), str(node.get("name"))] = node  # an operation's replaces its path's
        for place, name in sorted(parameters, key=lambda key: key[0] != "path"):  # the template has the names of these
            wire = name.lower() if place == "header" else name
            if (place, wire) in self._taken or (place == "header" and wire in _IGNORED_HEADERS):
                continue
            node = parameters[place, name]
            required = place == "path" or node.get("required") is True
            try:
                schema = self._parameter_schema(place, node)
            except Unsupported as error:
                self._leave_out(f"parameter {name!r} {error}", required)
                continue
            about = {"description": node["description"]} if node.get("description") else {}
            self._add(name, place, {**schema, **about}, required)

    def _parameter_schema(self, place: str, node: Mapping[str, Any]) -> dict[str, Any]:
        if place not in _STYLES:
            raise Unsupported(f"goes into a {place}")
        if "schema" not in node:
            raise Unsupported("has no schema")
        if node.get("style", _STYLES[place]) != _STYLES[place]:
            raise Unsupported(f"has the style {node['style']!r}")
        schema = self._schemas.top(node["schema"])
        if "object" in schema.get("type", ()) or "properties" in schema:
            raise Unsupported("is an object")
        if "array" in schema.get("type", ()) and place == "query" and node.get("explode") is False:
            return {"type": "string", "description": "Values, separated by commas"}
        return schema

    def _read_body(self, body: Mapping[str, Any]) -> None:
        content = body.get("content") or {}
        required = body.get("required") is True
        media = next((key for key in content if key.partition(";")[0].strip().lower() in _JSON_TYPES), None)
        if media is None:
            return self._leave_out(f"its body is {' or '.join(map(str, content)) or 'of an unknown type'}", required)
        schema = self._schemas.top((content[media] or {}).get("schema", {}))
        needed = schema.get("required", [])
        members = {} if set(schema) - _PLAIN_OBJECT or schema.get("additionalProperties") else schema.get("properties")
        if members and (required or not needed):  # else no body and an empty body are not the same
            for name, part in members.items():
                self._add(name, "body", part, name in needed)
            return None
        about = {"description": body["description"]} if body.get("description") else {}
        self._add("body", "whole_body", {**about, **schema}, required)

    def _leave_out(self, problem: str, required: bool) -> None:
        if required:
            raise Unsupported(problem)
        self._notes.append(problem)

    def _add(self, wire: str, place: str, schema: Any, required: bool) -> None:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", wire).strip("_") or place
        if name in self._properties:
            name = free_name(f"{name}_{place}", self._properties)
        self._properties[name] = schema
        self._required += [name] if required else []
        if place == "whole_body":
            self._places[name] = place
        elif name != wire or default_place(name, self._operation.method, self._operation.path) != place:
            self._places[name] = place if name == wire else f"{place}:{wire}"


class _Schemas:
    """Schemas of a document as JSON schemas of draft 2020-12; what they refer to is in `definitions`, for `$defs`.

    Only what a request may contain is kept: no `readOnly` property, and no keyword that a validator does not know.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.definitions: dict[str, Any] = {}
        self._document = document
        self._names: dict[str, str] = {}  # reference -> name in `definitions`

    def top(self, schema: Any) -> dict[str, Any]:
        """The schema; its top is never a reference.

        Raises:
            Unsupported: for a reference that cannot be followed, or a schema that is no mapping.
        """
        target = resolve(self._document, schema)
        if not isinstance(target, Mapping):
            raise Unsupported(f"a schema is no mapping: {target!r}")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        found: dict[str, Any] = self._translated({**target, **beside})
        return found

    def _translated(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self._translated(part) for part in schema]
        if not isinstance(schema, Mapping):
            return schema
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "$ref":
                made[key] = f"#/$defs/{self._name(value)}"
            elif key in _BY_NAME:
                made[key] = {str(name): self._translated(part) for name, part in value.items()}
            elif key in _VALUES:
                made[key] = value
            elif key not in _UNUSED and not key.startswith("x-"):
                made[key] = self._translated(value)
        self._without_read_only(schema, made)
        return _modern(made, nullable=schema.get("nullable") is True)

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            target = resolve(self._document, {"$ref": reference})
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2]) or "schema"
            name = self._names[reference] = free_name(name, self._names.values())
            self.definitions[name] = self._translated(target)
        return self._names[reference]

    def _without_read_only(self, schema: Mapping[str, Any], made: dict[str, Any]) -> None:
        for name, part in schema.get("properties", {}).items():
            part = resolve(self._document, part)
            if isinstance(part, Mapping) and part.get("readOnly") is True:
                del made["properties"][str(name)]
                made["required"] = [other for other in made.get("required", []) if other != name]


def _modern(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """OpenAPI 3.0's dialect as draft 2020-12 says it."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    try:
        re.compile(schema.get("pattern", ""))
    except re.error:  # JavaScript's dialect
        del schema["pattern"]
    if not nullable:
        return schema
    if not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, {"type": "null"}]}
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **choices}


def resolve(document: Mapping[str, Any], node: Any) -> Any:
    """What `node` refers to, if it is a reference.

    Raises:
        Unsupported: the reference leads nowhere, in a circle, or out of the document.
    """
    seen: list[str] = []
    while isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
        reference = node["$ref"]
        if reference in seen:
            raise Unsupported(f"the reference {reference!r} leads in a circle")
        if not reference.startswith("#/"):
            raise Unsupported(f"the reference {reference!r} leads out of the document")
        seen.append(reference)
        node = document
        for part in unquote(reference[2:]).split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or part not in node:
                raise Unsupported(f"the reference {reference!r} leads nowhere")
            node = node[part]
    return node


def free_name(name: str, taken: Collection[str]) -> str:
    """The name itself, or the first of name_2, name_3, ... that is not taken."""
    if name not in taken:
        return name
    return next(free for number in count(2) if (free := f"{name}_{number}") not in taken)


def _description(operation: Mapping[str, Any]) -> str:
    summary = str(operation.get("summary") or "").strip()
    text = str(operation.get("description") or "").strip()
    if not summary or text.startswith(summary):
        return text
    return f"{summary.rstrip('.')}. {text}".strip()
