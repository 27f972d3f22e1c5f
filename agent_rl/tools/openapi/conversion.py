"""From an OpenAPI document to a YAML file of `http` tools, to be read and pruned by hand.

    conversion = from_openapi(read_openapi("openapi.json"), base_url="https://api.example.com")
    Path("tools.yaml").write_text(to_yaml(conversion))

Converted are OpenAPI 3.0 and 3.1: parameters in path, query and header, JSON bodies, and the security schemes bearer,
basic and API key in a header or the query. What cannot be converted is left out and named in `Conversion.skipped`; what
is converted can be loaded. What this does not promise: that the document tells the truth about its server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import yaml

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.tools.loading import dump_tools
from agent_rl.tools.openapi.operation import endpoint_of
from agent_rl.tools.openapi.schema import Unsupported, numbered, resolve

__all__ = ["Conversion", "from_openapi", "read_openapi", "to_yaml"]

_METHODS = ("get", "post", "put", "patch", "delete")
_OTHER_METHODS = ("head", "options", "trace")
_WANTED = {"bearer": "a token", "basic": "user:password", "header": "a key", "query": "a key"}


@dataclass(frozen=True)
class Conversion:
    """A tool file's content, and what is not in it."""

    content: dict[str, Any]
    """`{"tools": [...]}`, one entry for each kind of credentials."""
    skipped: list[tuple[str, str]]
    """(operation, what of it is left out and why)."""


@dataclass(frozen=True)
class _Operation:
    name: str
    """Of the tool."""
    method: str
    path: str
    node: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def names(self) -> list[str]:
        return [self.label, self.name, str(self.node.get("operationId", self.name))]


def read_openapi(path: str | Path) -> Mapping[str, Any]:
    """The document of a JSON or YAML file.

    Raises:
        ConfigError: it cannot be read, or is no mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _Yaml12)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}", "Name an OpenAPI document") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(path), f"neither JSON nor YAML: {error}", "Name an OpenAPI document") from error
    if not isinstance(document, Mapping):
        raise ConfigError(str(path), "no mapping at the top level", "Name an OpenAPI document")
    return document


def from_openapi(
    document: Mapping[str, Any], *, base_url: str | None = None, include: Collection[str] | None = None
) -> Conversion:
    """The tools of a document.

    Args:
        document: for example from `read_openapi`.
        base_url: where the API is, instead of the document's first server; when it has no path, the path of a server
            that is given without a host is appended.
        include: operations to convert: operationId, tool name or `GET /path`, with shell wildcards. None: all.

    Raises:
        ConfigError: it is not OpenAPI 3.0 or 3.1, names no host, or nothing of it can be converted.
    """
    _check_version(document)
    url = _server(document, base_url)
    skipped = [(f"webhook {name}", "is a call that the server makes") for name in document.get("webhooks") or {}]
    entries: dict[str, dict[str, Any]] = {}
    for operation in _included(_operations(document, skipped), include):
        try:
            auth, endpoint, notes = _convert(document, operation)
        except Unsupported as error:
            skipped.append((operation.label, str(error)))
            continue
        skipped += [(operation.label, note) for note in notes]
        config = {"base_url": url, **({"auth": auth} if auth else {}), "endpoints": []}
        entry = entries.setdefault(json.dumps(auth), {"name": "http", "config": config})
        entry["config"]["endpoints"].append(endpoint)
    if not entries:
        reasons = "; ".join(f"{what}: {why}" for what, why in skipped[:3]) or "there is none"
        raise ConfigError("paths", f"no operation can be converted ({reasons})", "Write the endpoints by hand")
    return Conversion({"tools": list(entries.values())}, skipped)


def to_yaml(conversion: Conversion) -> str:
    """The tool file; comments at its top name the variables to set and what was left out."""
    lines = ["From an OpenAPI document. Remove what the policy should not have: every tool costs tokens in its prompt."]
    for entry in conversion.content["tools"]:
        if auth := entry["config"].get("auth"):
            lines.append(f"Set the environment variable {auth['env']}: {_WANTED[auth['type']]}.")
    lines += ["Left out:"] if conversion.skipped else []
    lines += [f"- {what}: {why}" for what, why in conversion.skipped]
    comments = "".join(f"# {_one_line(line)}\n" for line in lines)
    return comments + dump_tools(conversion.content)


def _check_version(document: Mapping[str, Any]) -> None:
    if "swagger" in document:
        problem = f"Swagger {document['swagger']} is not OpenAPI 3"
        raise ConfigError(
            "swagger", problem, "Convert the document to OpenAPI 3.0 first, for example with swagger2openapi"
        )
    version = document.get("openapi")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        raise ConfigError("openapi", f"expected 3.0 or 3.1, got {version!r}", "Name an OpenAPI document")
    if not isinstance(document.get("paths", {}), Mapping):
        raise ConfigError("paths", f"expected a mapping, got {document['paths']!r}", "Fix the document")


def _server(document: Mapping[str, Any], base_url: str | None) -> str:
    server = (document.get("servers") or [{}])[0]
    url, variables = str(server.get("url", "/")), server.get("variables", {})

    def default(match: re.Match[str]) -> str:
        try:
            return str(variables[match[1]]["default"])
        except (KeyError, TypeError):
            raise ConfigError("servers[0]", f"no default for {match[0]}", "Give a base_url") from None

    if base_url is not None and urlsplit(base_url).path not in ("", "/"):
        url = base_url
    else:
        url = re.sub(r"\{([^{}]*)\}", default, url)
        if base_url is not None:
            url = base_url if urlsplit(url).netloc else urljoin(base_url, url)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ConfigError("servers[0].url", f"{url!r} names no host", "Give a base_url such as https://api.example.com")
    return url.rstrip("/")


def _operations(document: Mapping[str, Any], skipped: list[tuple[str, str]]) -> list[_Operation]:
    """All of them; the names of their tools are unique."""
    found: dict[str, _Operation] = {}
    for path, shared in document.get("paths", {}).items():
        if not path.startswith("/"):
            continue  # an extension
        try:
            shared = resolve(document, shared)
        except Unsupported as error:
            skipped.append((path, str(error)))
            continue
        inherited = {"servers": shared.get("servers")}
        for key, node in shared.items():
            method = key.upper()
            if key in _OTHER_METHODS:
                skipped.append((f"{method} {path}", "has no answer that a tool could show"))
            if key in _METHODS and isinstance(node, Mapping):
                parameters = [*(shared.get("parameters") or []), *(node.get("parameters") or [])]
                text = node.get("operationId") or f"{key}_{path}"
                name = re.sub(r"_*[^A-Za-z0-9-]+_*", "_", str(text)).strip("_")[:60] or key
                name = next(free for free in numbered(name) if free not in found)
                found[name] = _Operation(name, method, path, {**inherited, **node, "parameters": parameters})
    return list(found.values())


def _included(operations: list[_Operation], include: Collection[str] | None) -> list[_Operation]:
    if include is None:
        return operations
    chosen = {}
    for pattern in include:
        matching = [one for one in operations if any(fnmatchcase(name, pattern) for name in one.names)]
        if not matching:
            raise ConfigError(
                "include", f"{pattern!r} fits no operation", did_you_mean(pattern, [o.name for o in operations])
            )
        chosen.update({one.name: one for one in matching})
    return [one for one in operations if one.name in chosen]


def _convert(
    document: Mapping[str, Any], operation: _Operation
) -> tuple[dict[str, str] | None, dict[str, Any], list[str]]:
    """(auth, endpoint, what of the operation is left out)."""
    try:
        auth = _auth(document, operation.node)
        endpoint, notes = endpoint_of(
            document,
            operation.node,
            name=operation.name,
            method=operation.method,
            path=operation.path,
            taken=_filled_by(auth),
        )
    except (AttributeError, TypeError, KeyError, RecursionError) as error:  # the other operations are still converted
        raise Unsupported(f"not valid OpenAPI ({error})") from error
    return auth, endpoint, notes


def _auth(document: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, str] | None:
    """The entry's `auth` for the first alternative that it can express."""
    alternatives = operation.get("security", document.get("security")) or [{}]
    if {} in alternatives:
        return None
    schemes = document.get("components", {}).get("securitySchemes", {})
    problem = ""
    for alternative in alternatives:
        problem = "needs several credentials at once"
        if len(alternative) == 1:
            (name,) = alternative
            scheme = resolve(document, schemes.get(name)) or {}
            auth = _scheme_auth(scheme)
            if auth is not None:
                title = document.get("info", {}).get("title", "")
                variable = re.sub(r"[^A-Z0-9]+", "_", f"{title}_{name}".upper()).strip("_")
                variable = variable if variable[:1].isalpha() else f"API_{variable}"
                return {"type": auth[0], "env": variable, **({"name": auth[1]} if auth[1] else {})}
            kind = scheme.get("scheme") if scheme.get("type") == "http" else scheme.get("type")
            problem = f"needs credentials of the unsupported kind {kind!r} ({name})"
    raise Unsupported(problem)


def _scheme_auth(scheme: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """(type, name) of the `auth` for a security scheme."""
    kind = str(scheme.get("scheme", "")).lower()
    if scheme.get("type") == "http" and kind in ("bearer", "basic"):
        return kind, None
    if scheme.get("type") == "apiKey" and scheme.get("in") in ("header", "query"):
        return scheme["in"], str(scheme.get("name"))
    return None


def _filled_by(auth: Mapping[str, str] | None) -> set[tuple[str, str]]:
    if auth is None:
        return set()
    return (
        {("query", auth["name"])}
        if auth["type"] == "query"
        else {("header", auth.get("name", "authorization").lower())}
    )


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class _Yaml12(yaml.SafeLoader):
    """YAML as OpenAPI means it: `no` and `12:30` and 2020-01-01 are text."""


_Yaml12.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)
