"""Converts an OpenAPI document to a YAML file of `http` tools, to review and prune by hand.

    conversion = from_openapi(read_openapi("openapi.json"), base_url="https://api.example.com")
    Path("tools.yaml").write_text(to_yaml(conversion))

An operation becomes an endpoint of the toolset `http`, with its features: parameters in path, query and header in
OpenAPI's default styles, a JSON body, and the security schemes bearer, basic and API key in a header or the query, in
OpenAPI 3.0 and 3.1. Any other operation is skipped and listed in `Conversion.skipped`. Whether the document matches its
server is not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import yaml
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import validated
from agent_rl.tools.arguments import rewritten, schema_problem
from agent_rl.tools.builtin._http.request import HttpEndpoint, default_place
from agent_rl.tools.loading import dump_tools

__all__ = ["Conversion", "from_openapi", "read_openapi", "to_yaml"]

_METHODS = ("get", "post", "put", "patch", "delete")
_WANTED = {"bearer": "a token", "basic": "user:password", "header": "a key", "query": "a key"}
_STYLES = {"path": "simple", "query": "form", "header": "simple"}
_IGNORED_HEADERS = ("accept", "authorization", "content-type")  # OpenAPI defines them elsewhere
_JSON_TYPES = ("application/json", "application/*", "*/*")
_SCHEMAS = "#/components/schemas/"
_PLAIN_OBJECT = {"type", "properties", "required", "additionalProperties", "description", "default"}
_UNUSED = frozenset(("title", "example", "examples", "xml", "externalDocs", "discriminator", "deprecated", "nullable"))
"""Schema keywords that a validator ignores and a policy does not need."""


class _Unsupported(Exception):
    """The document uses a feature that an endpoint of `http` does not support; the text names it."""


@dataclass(frozen=True)
class Conversion:
    """A tool file's content, and the parts of the document that were skipped."""

    content: dict[str, Any]
    """`{"tools": [...]}`, one entry per kind of credentials."""
    skipped: list[tuple[str, str]]
    """(operation, the skipped part and the reason)."""


def read_openapi(path: str | Path) -> Mapping[str, Any]:
    """Read an OpenAPI document from a JSON or YAML file.

    Raises:
        ConfigError: the file cannot be read, or is not a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _Yaml12)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}", "Name an OpenAPI document") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(path), f"neither JSON nor YAML: {error}", "Name an OpenAPI document") from error
    if not isinstance(document, Mapping):
        raise ConfigError(str(path), "not a mapping at the top level", "Name an OpenAPI document")
    return document


def from_openapi(
    document: Mapping[str, Any], *, base_url: str | None = None, include: Collection[str] | None = None
) -> Conversion:
    """Convert the operations of a document to tools.

    Args:
        document: the OpenAPI document, for example from `read_openapi`.
        base_url: URL of the API, instead of the document's first server; if it has no path, the path of a server
            without a host is appended.
        include: operations to convert, by operationId, tool name or `GET /path`, with shell wildcards. None: all.

    Raises:
        ConfigError: it is not OpenAPI 3.0 or 3.1, has no host, or no operation can be converted.
    """
    version = document.get("openapi")
    if not str(version).startswith(("3.0", "3.1")):
        remedy = "Name a document of OpenAPI 3; swagger2openapi converts one of Swagger 2"
        raise ConfigError("openapi", f"expected 3.0 or 3.1, got {version!r}", remedy)
    if not isinstance(paths := document.get("paths", {}), Mapping):
        raise ConfigError("paths", f"expected a mapping, got {paths!r}", "Fix the document")
    url = _server(document, base_url)
    skipped = [(path, "is a reference to another document") for path, shared in paths.items() if "$ref" in shared]
    entries: dict[str, dict[str, Any]] = {}
    for operation in _included(_operations(document), include):
        try:
            auth = operation.auth()
            endpoint = operation.endpoint(auth)
        except _Unsupported as error:
            skipped.append((operation.label, str(error)))
            continue
        except (
            AttributeError,
            TypeError,
            KeyError,
            RecursionError,
        ) as error:  # the others are still converted
            skipped.append((operation.label, f"not valid OpenAPI ({error})"))
            continue
        skipped += [(operation.label, note) for note in operation.notes]
        config = {"base_url": url, **({"auth": auth} if auth else {}), "endpoints": []}
        entry = entries.setdefault(json.dumps(auth), {"name": "http", "config": config})
        entry["config"]["endpoints"].append(endpoint)
    if not entries:
        reasons = "; ".join(f"{what}: {why}" for what, why in skipped[:3]) or "it has none"
        raise ConfigError("paths", f"no operation can be converted ({reasons})", "Write the endpoints by hand")
    return Conversion({"tools": list(entries.values())}, skipped)


def to_yaml(conversion: Conversion) -> str:
    """Return the text of the tool file; comments at its top list the variables to set and the skipped parts."""
    lines = ["From an OpenAPI document. Remove what the policy should not have: every tool costs tokens in its prompt."]
    for entry in conversion.content["tools"]:
        if auth := entry["config"].get("auth"):
            lines.append(f"Set the environment variable {auth['env']}: {_WANTED[auth['type']]}.")
    lines += ["Left out:"] if conversion.skipped else []
    lines += [f"- {what}: {why}" for what, why in conversion.skipped]
    comments = "".join(f"# {_one_line(line)}\n" for line in lines)
    return comments + dump_tools(conversion.content)


def _server(document: Mapping[str, Any], base_url: str | None) -> str:
    url = str((document.get("servers") or [{}])[0].get("url", "/"))
    if base_url is not None:
        is_whole = urlsplit(url).netloc or urlsplit(base_url).path not in ("", "/")
        url = base_url if is_whole else urljoin(base_url, url)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc or "{" in url:
        raise ConfigError("servers[0].url", f"{url!r} has no host", "Give a base_url such as https://api.example.com")
    return url.rstrip("/")


def _operations(document: Mapping[str, Any]) -> list[_Operation]:
    """Return all operations of a document, each with a unique tool name."""
    operations: dict[str, _Operation] = {}
    for path, shared in document.get("paths", {}).items():
        for key in _METHODS:
            if path.startswith("/") and isinstance(node := shared.get(key), Mapping):
                parameters = [*(shared.get("parameters") or []), *(node.get("parameters") or [])]
                text = node.get("operationId") or f"{key}_{path}"
                name = re.sub(r"_*[^A-Za-z0-9-]+_*", "_", str(text)).strip("_")[:60] or key
                name = _free_name(name, operations)
                node = {"servers": shared.get("servers"), **node, "parameters": parameters}
                operations[name] = _Operation(document, name, key.upper(), path, node)
    return list(operations.values())


def _included(operations: list[_Operation], include: Collection[str] | None) -> list[_Operation]:
    if include is None:
        return operations
    names = {item.name: (item.label, item.name, str(item.node.get("operationId", item.name))) for item in operations}
    chosen: set[str] = set()
    for pattern in include:
        matching = {key for key, labels in names.items() if any(fnmatchcase(label, pattern) for label in labels)}
        if not matching:
            raise ConfigError("include", f"{pattern!r} matches no operation", did_you_mean(pattern, names))
        chosen |= matching
    return [operation for operation in operations if operation.name in chosen]


class _Operation:
    """A method of a path, converted to an endpoint of `http` whose arguments are its parameters and its body.

    Args:
        document: the OpenAPI document.
        name: the tool's name.
        method: HTTP method, for example `GET`.
        path: path template.
        node: the operation in the document, with the parameters of its path before its own.
    """

    def __init__(self, document: Mapping[str, Any], name: str, method: str, path: str, node: Mapping[str, Any]) -> None:
        self._document, self._method, self._path, self.node = document, method, path, node
        self.name, self.label = name, f"{method} {path}"
        self._taken: set[tuple[str, str]] = set()
        """(place, name) pairs that the credentials fill; such a parameter is not an argument."""
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._places: dict[str, str] = {}
        self.notes: list[str] = []
        """Parts of the operation that the endpoint omits."""

    def auth(self) -> dict[str, str] | None:
        """Return the entry's `auth` for the first supported alternative.

        Raises:
            _Unsupported: no alternative is supported.
        """
        alternatives = self.node.get("security", self._document.get("security")) or [{}]
        schemes = self._document.get("components", {}).get("securitySchemes", {})
        if {} in alternatives:
            return None
        for alternative in alternatives:
            name = next(iter(alternative))
            scheme = _resolved(self._document, schemes.get(name)) or {}
            kind = str(scheme.get("scheme") or scheme.get("in")).lower()
            if len(alternative) > 1 or kind not in _WANTED:
                continue
            title = self._document.get("info", {}).get("title", "")
            variable = re.sub(r"[^A-Z0-9]+", "_", f"{title}_{name}".upper()).strip("_")
            auth = {"type": kind, "env": variable if variable[:1].isalpha() else f"API_{variable}"}
            return auth | ({"name": str(scheme.get("name"))} if "in" in scheme else {})
        raise _Unsupported(f"needs credentials of an unsupported kind: {json.dumps(alternatives)}")

    def endpoint(self, auth: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the endpoint for an entry with these credentials.

        Raises:
            _Unsupported: the operation requires an unsupported feature.
        """
        node = self.node
        if node.get("deprecated") is True:
            raise _Unsupported("deprecated")
        if node.get("servers"):
            raise _Unsupported("has its own servers")
        if auth is not None:
            name = auth.get("name", "authorization")
            self._taken = {("query", name) if auth["type"] == "query" else ("header", name.lower())}
        self._read_parameters(node.get("parameters") or [])
        if body := _resolved(self._document, node.get("requestBody")):
            self._read_body(body)
        parameters = {"type": "object", "properties": self._properties, "required": self._required}
        endpoint: dict[str, Any] = {
            "name": self.name,
            "description": str(node.get("description") or node.get("summary") or self.label).strip(),
            "method": self._method,
            "path": self._path,
            "places": self._places,
            "parameters": self._with_definitions(parameters),
        }
        if problem := schema_problem(endpoint["parameters"]):
            raise _Unsupported(f"its schema cannot be used: {problem[0]}")
        try:
            validated(HttpEndpoint, endpoint).request(self._taken)
        except ConfigError as error:
            raise _Unsupported(str(error)) from None
        return endpoint

    def _read_parameters(self, nodes: list[Any]) -> None:
        resolved = [_resolved(self._document, node) for node in nodes]
        parameters = {(str(node.get("in")), str(node.get("name"))): node for node in resolved}  # last wins
        for place, name in sorted(
            parameters, key=lambda key: key[0] != "path"
        ):  # path names first: the template uses them
            wire = name.lower() if place == "header" else name
            if (place, wire) in self._taken or (place == "header" and wire in _IGNORED_HEADERS):
                continue
            node = parameters[place, name]
            required = place == "path" or node.get("required") is True
            style = node.get("style", _STYLES.get(place))
            schema = self._schema(node.get("schema", {}))
            is_array, is_object = ("array" in schema.get("type", ()), "object" in schema.get("type", ()))
            if place not in _STYLES or "schema" not in node:
                self._leave_out(f"parameter {name!r} is a {place}, or has no schema", required)
            elif style != _STYLES[place] or (is_array and place == "query" and node.get("explode") is False):
                self._leave_out(f"parameter {name!r} has a style other than {_STYLES[place]}, exploded", required)
            elif is_object or "properties" in schema:
                self._leave_out(f"parameter {name!r} is an object", required)
            else:
                about = {"description": node["description"]} if node.get("description") else {}
                self._add(name, place, {**schema, **about}, required)

    def _read_body(self, body: Mapping[str, Any]) -> None:
        content = body.get("content") or {}
        required = body.get("required") is True
        media = next((key for key in content if key.partition(";")[0].strip().lower() in _JSON_TYPES), None)
        if media is None:
            return self._leave_out(f"its body is {' or '.join(map(str, content)) or 'of an unknown type'}", required)
        schema = self._schema((content[media] or {}).get("schema", {}))
        needed = schema.get("required", [])
        members = {} if set(schema) - _PLAIN_OBJECT or schema.get("additionalProperties") else schema.get("properties")
        if members and (required or not needed):  # otherwise no body and an empty body differ
            for name, part in members.items():
                self._add(name, "body", part, name in needed)
            return None
        about = {"description": body["description"]} if body.get("description") else {}
        self._add("body", "whole_body", {**about, **schema}, required)

    def _leave_out(self, problem: str, required: bool) -> None:
        if required:
            raise _Unsupported(problem)
        self.notes.append(problem)

    def _add(self, wire: str, place: str, schema: Any, required: bool) -> None:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", wire).strip("_") or place
        if name in self._properties:
            name = _free_name(f"{name}_{place}", self._properties)
        self._properties[name] = schema
        self._required += [name] if required else []
        if place == "whole_body":
            self._places[name] = place
        elif name != wire or default_place(name, self._method, self._path) != place:
            self._places[name] = place if name == wire else f"{place}:{wire}"

    def _schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a schema to JSON schema draft 2020-12; the top level is never a reference."""
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        converted: dict[str, Any] = rewritten({**_resolved(self._document, schema), **siblings}, _modern)
        return converted

    def _with_definitions(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return `parameters` with the schemas that they refer to."""
        known = self._document.get("components", {}).get("schemas", {})
        definitions: dict[str, Any] = {}
        waiting: list[Any] = [parameters]
        while waiting:
            for name in re.findall(r'"\$ref": "#/\$defs/([^"]*)"', json.dumps(waiting.pop())):
                if name in known and name not in definitions:
                    definitions[name] = rewritten(known[name], _modern)
                    waiting.append(definitions[name])
        return {**parameters, "$defs": definitions} if definitions else parameters


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert OpenAPI's schema dialect to draft 2020-12, without `readOnly` properties, which requests must omit."""
    converted = {key: value for key, value in schema.items() if key not in _UNUSED and not key.startswith("x-")}
    if "$ref" in converted:
        converted["$ref"] = converted["$ref"].replace(_SCHEMAS, "#/$defs/")
    hidden = [name for name, part in converted.get("properties", {}).items() if part.get("readOnly") is True]
    if hidden:
        converted["properties"] = {name: part for name, part in converted["properties"].items() if name not in hidden}
        converted["required"] = [name for name in converted.get("required", []) if name not in hidden]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(converted.get(exclusive), bool) and converted.pop(exclusive) and bound in converted:
            converted[exclusive] = converted.pop(bound)
    if schema.get("nullable") is not True:
        return converted
    if "type" not in converted:
        return {"anyOf": [converted, {"type": "null"}]}
    choices = {"enum": [*converted["enum"], None]} if "enum" in converted else {}
    return {**converted, "type": [converted["type"], "null"], **choices}


def _resolved(document: Mapping[str, Any], node: Any) -> Any:
    """Return the target of `node` if it is a reference, otherwise `node`.

    Raises:
        _Unsupported: the reference cannot be followed.
    """
    resolver = Registry().with_resource("", Resource.opaque(document)).resolver()
    references: list[str] = []
    while isinstance(node, Mapping) and "$ref" in node:
        references.append(node["$ref"])
        try:
            node = resolver.lookup(references[-1]).contents
        except Unresolvable:
            raise _Unsupported(f"the reference {references[-1]!r} has no target in the document") from None
        if references[-1] in references[:-1]:
            raise _Unsupported(f"the reference {references[-1]!r} is circular")
    return node


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name itself, or the first of name_2, name_3, ... that is not taken."""
    if name not in taken:
        return name
    return next(free for number in count(2) if (free := f"{name}_{number}") not in taken)


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class _Yaml12(yaml.SafeLoader):
    """YAML 1.2 as OpenAPI uses it: `no`, `12:30` and 2020-01-01 are text."""


_Yaml12.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)
