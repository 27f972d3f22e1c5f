"""One operation of an OpenAPI document as an endpoint of `http`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import validated
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.builtin._http.request import HttpEndpoint, default_place
from agent_rl.tools.openapi.schema import Schemas, TooLarge, Unsupported, numbered, resolve

__all__ = ["endpoint_of"]

_IGNORED_HEADERS = ("accept", "authorization", "content-type")  # OpenAPI's rule: they are given elsewhere
_STYLES = {"path": "simple", "query": "form", "header": "simple"}
_JSON_TYPES = ("application/json", "application/*", "*/*")
_PLAIN_OBJECT = {"type", "properties", "required", "allOf", "additionalProperties", "description", "default"}


def endpoint_of(
    document: Mapping[str, Any],
    operation: Mapping[str, Any],
    *,
    name: str,
    method: str,
    path: str,
    taken: Collection[tuple[str, str]],
) -> tuple[dict[str, Any], list[str]]:
    """The endpoint, and the parts of the operation that it leaves out.

    Args:
        document: what references lead into.
        operation: its node, with the parameters of its path.
        name: of the tool.
        method: in upper case.
        path: the template.
        taken: (place, name) pairs that the credentials fill; such a parameter is no argument.

    Raises:
        Unsupported: it cannot be called without what is missing.
    """
    if operation.get("deprecated") is True:
        raise Unsupported("deprecated")
    if operation.get("servers"):
        raise Unsupported("has servers of its own")
    try:
        arguments = _Arguments(document, method, path, inline=True)
        arguments.read(operation, taken)
    except TooLarge:
        arguments = _Arguments(document, method, path, inline=False)
        arguments.read(operation, taken)
    description = _description(operation) or f"{method} {path}"
    endpoint: dict[str, Any] = {"name": name, "description": description, "method": method, "path": path}
    if arguments.places:
        endpoint["places"] = arguments.places
    endpoint["parameters"] = arguments.schema()
    if problem := schema_problem(endpoint["parameters"]):
        raise Unsupported(f"its schema cannot be used: {problem[0]}")
    try:
        validated(HttpEndpoint, endpoint).request(taken)
    except ConfigError as error:
        raise Unsupported(str(error)) from None
    if operation.get("callbacks"):
        arguments.notes.append("its callbacks")
    return endpoint, arguments.notes


class _Arguments:
    """Parameters and body, merged into one object."""

    def __init__(self, document: Mapping[str, Any], method: str, path: str, *, inline: bool) -> None:
        self.places: dict[str, str] = {}
        self.notes: list[str] = []
        self._document = document
        self._method = method
        self._path = path
        self._schemas = Schemas(document, inline=inline)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def schema(self) -> dict[str, Any]:
        result: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            result["required"] = self._required
        definitions = self._schemas.definitions()
        return {**result, "$defs": definitions} if definitions else result

    def read(self, operation: Mapping[str, Any], taken: Collection[tuple[str, str]]) -> None:
        parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
        for node in operation.get("parameters") or []:
            node = resolve(self._document, node)
            parameters[str(node.get("in")), str(node.get("name"))] = node  # an operation's replaces its path's
        for place, name in sorted(parameters, key=lambda key: key[0] != "path"):  # the template has the names of these
            wire = name.lower() if place == "header" else name
            if (place, wire) not in taken and not (place == "header" and wire in _IGNORED_HEADERS):
                self._read_parameter(place, name, parameters[place, name])
        if body := resolve(self._document, operation.get("requestBody")):
            self._read_body(body)

    def _read_parameter(self, place: str, name: str, node: Mapping[str, Any]) -> None:
        required = place == "path" or node.get("required") is True
        try:
            schema = self._parameter_schema(place, node)
        except Unsupported as error:
            if required:
                raise Unsupported(f"parameter {name!r} {error}") from None
            self.notes.append(f"parameter {name!r} {error}")
            return
        if node.get("description"):
            schema = {**schema, "description": node["description"]}
        self._add(name, place, schema, required)

    def _parameter_schema(self, place: str, node: Mapping[str, Any]) -> dict[str, Any]:
        if place not in _STYLES:
            raise Unsupported(f"goes into a {place}")
        if "schema" not in node:
            raise Unsupported("has no schema")
        if node.get("deprecated") is True and node.get("required") is not True:
            raise Unsupported("is deprecated")
        style = node.get("style", _STYLES[place])
        if style != _STYLES[place]:
            raise Unsupported(f"has the style {style!r}")
        schema = self._schemas.translate(node["schema"])
        kinds = _kinds(schema)
        if "object" in kinds or "properties" in schema:
            raise Unsupported("is an object")
        if "array" in kinds and place == "query" and node.get("explode") is False:
            return {"type": "string", "description": "Values, separated by commas"}
        return schema

    def _read_body(self, body: Mapping[str, Any]) -> None:
        content = body.get("content") or {}
        required = body.get("required") is True
        media = next((key for key in content if key.partition(";")[0].strip().lower() in _JSON_TYPES), None)
        if media is None:
            problem = f"its body is {' or '.join(map(str, content)) or 'of an unknown type'}"
            if required:
                raise Unsupported(problem)
            self.notes.append(problem)
            return
        schema = self._schemas.translate((content[media] or {}).get("schema", {}))
        members = _members(schema)
        if members is None or (members[1] and not required):  # no body and an empty body are not the same then
            if body.get("description"):
                schema = {"description": body["description"], **schema}
            self._add("body", "whole_body", schema, required)
            return
        properties, needed = members
        for name, part in properties.items():
            self._add(name, "body", part, name in needed)

    def _add(self, wire: str, place: str, schema: Any, required: bool) -> None:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", wire).strip("_") or place
        if name in self._properties:
            name = next(free for free in numbered(f"{name}_{place}") if free not in self._properties)
        self._properties[name] = schema
        if required:
            self._required.append(name)
        if place == "whole_body":
            self.places[name] = place
        elif name != wire or default_place(name, self._method, self._path) != place:
            self.places[name] = place if name == wire else f"{place}:{wire}"


def _members(schema: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]] | None:
    """(properties, required) of a schema that says nothing else about its object, or None."""
    if set(schema) - _PLAIN_OBJECT or schema.get("type", "object") != "object" or schema.get("additionalProperties"):
        return None
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        members = _members(part) if isinstance(part, Mapping) else None
        if members is None:
            return None
        properties.update(members[0])
        required |= members[1]
    return (properties, required) if properties else None


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _description(operation: Mapping[str, Any]) -> str:
    summary = str(operation.get("summary") or "").strip()
    text = str(operation.get("description") or "").strip()
    if not summary or text.startswith(summary):
        return text
    return f"{summary.rstrip('.')}. {text}".strip()
