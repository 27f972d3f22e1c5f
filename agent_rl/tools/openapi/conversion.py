"""From an OpenAPI document to a YAML file of `http` tools, to be read and pruned by hand.

    conversion = from_openapi(read_openapi("openapi.json"), base_url="https://api.example.com")
    Path("tools.yaml").write_text(to_yaml(conversion))

Converted are OpenAPI 3.0 and 3.1: GET, POST, PUT, PATCH and DELETE with parameters in path, query and header, JSON
bodies, and the security schemes bearer, basic and API key in a header or the query. An operation that cannot be
converted is left out and named in `Conversion.skipped`; what is converted can be loaded. What this does not promise:
that the document tells the truth about its server.
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
from agent_rl.tools.openapi.operation import Endpoint, Operation, Unsupported, free_name, resolve

__all__ = ["Conversion", "from_openapi", "read_openapi", "to_yaml"]

_METHODS = ("get", "post", "put", "patch", "delete")
_WANTED = {"bearer": "a token", "basic": "user:password", "header": "a key", "query": "a key"}


@dataclass(frozen=True)
class Conversion:
    """A tool file's content, and what is not in it."""

    content: dict[str, Any]
    """`{"tools": [...]}`, one entry for each kind of credentials."""
    skipped: list[tuple[str, str]]
    """(operation, what of it is left out and why)."""


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
    skipped: list[tuple[str, str]] = []
    entries: dict[str, dict[str, Any]] = {}
    for operation in _included(_operations(document, skipped), include):
        try:
            auth = _auth(document, operation.node)
            endpoint, notes = Endpoint(document, operation, auth).read()
        except Unsupported as error:
            skipped.append((operation.label, str(error)))
            continue
        except (AttributeError, TypeError, KeyError, RecursionError) as error:  # the others are still converted
            skipped.append((operation.label, f"not valid OpenAPI ({error})"))
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
        remedy = "Convert the document to OpenAPI 3.0 first, for example with swagger2openapi"
        raise ConfigError("swagger", f"Swagger {document['swagger']} is not OpenAPI 3", remedy)
    version = document.get("openapi")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        raise ConfigError("openapi", f"expected 3.0 or 3.1, got {version!r}", "Name an OpenAPI document")
    if not isinstance(document.get("paths", {}), Mapping):
        raise ConfigError("paths", f"expected a mapping, got {document['paths']!r}", "Fix the document")


def _server(document: Mapping[str, Any], base_url: str | None) -> str:
    server = (document.get("servers") or [{}])[0]
    url = str(server.get("url", "/"))
    for name, variable in (server.get("variables") or {}).items():
        url = url.replace(f"{{{name}}}", str(variable.get("default", f"{{{name}}}")))
    if base_url is not None:
        is_whole = urlsplit(url).netloc or urlsplit(base_url).path not in ("", "/")
        url = base_url if is_whole else urljoin(base_url, url)
    if "{" in url:
        raise ConfigError("servers[0]", f"no default for a variable in {url}", "Give a base_url")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ConfigError("servers[0].url", f"{url!r} names no host", "Give a base_url such as https://api.example.com")
    return url.rstrip("/")


def _operations(document: Mapping[str, Any], skipped: list[tuple[str, str]]) -> list[Operation]:
    """All of them; the names of their tools are unique."""
    found: dict[str, Operation] = {}
    for path, shared in document.get("paths", {}).items():
        if not path.startswith("/"):
            continue  # an extension
        try:
            shared = resolve(document, shared)
        except Unsupported as error:
            skipped.append((path, str(error)))
            continue
        for key in _METHODS:
            if isinstance(node := shared.get(key), Mapping):
                parameters = [*(shared.get("parameters") or []), *(node.get("parameters") or [])]
                text = node.get("operationId") or f"{key}_{path}"
                name = re.sub(r"_*[^A-Za-z0-9-]+_*", "_", str(text)).strip("_")[:60] or key
                name = free_name(name, found)
                node = {"servers": shared.get("servers"), **node, "parameters": parameters}
                found[name] = Operation(name, key.upper(), path, node)
    return list(found.values())


def _included(operations: list[Operation], include: Collection[str] | None) -> list[Operation]:
    if include is None:
        return operations
    names = {one.name: (one.label, one.name, str(one.node.get("operationId", one.name))) for one in operations}
    chosen: set[str] = set()
    for pattern in include:
        matching = {key for key, labels in names.items() if any(fnmatchcase(label, pattern) for label in labels)}
        if not matching:
            raise ConfigError("include", f"{pattern!r} fits no operation", did_you_mean(pattern, names))
        chosen |= matching
    return [one for one in operations if one.name in chosen]


def _auth(document: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, str] | None:
    """The entry's `auth` for the first alternative that it can express."""
    alternatives = operation.get("security", document.get("security")) or [{}]
    if {} in alternatives:
        return None
    schemes = document.get("components", {}).get("securitySchemes", {})
    problem = ""
    for alternative in alternatives:
        if len(alternative) > 1:
            problem = "needs several credentials at once"
            continue
        (name,) = alternative
        scheme = resolve(document, schemes.get(name)) or {}
        kind = str(scheme.get("scheme") if scheme.get("type") == "http" else scheme.get("type"))
        title = document.get("info", {}).get("title", "")
        variable = re.sub(r"[^A-Z0-9]+", "_", f"{title}_{name}".upper()).strip("_")
        variable = variable if variable[:1].isalpha() else f"API_{variable}"
        if kind.lower() in ("bearer", "basic"):
            return {"type": kind.lower(), "env": variable}
        if kind == "apiKey" and scheme.get("in") in ("header", "query"):
            return {"type": scheme["in"], "env": variable, "name": str(scheme.get("name"))}
        problem = f"needs credentials of the unsupported kind {kind!r} ({name})"
    raise Unsupported(problem)


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
