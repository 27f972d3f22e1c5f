"""Checks the declaration of an `http` endpoint, and builds requests from arguments without sending them.

A call sets the values of declared arguments, each in its declared place, and nothing else. A path argument must stay
within one segment, so slashes are rejected, even encoded ones, because many servers decode `%2F` before routing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import parse_qs, quote

from pydantic import Field

from agent_rl.errors import ConfigError, ToolError, did_you_mean
from agent_rl.tools.base import ToolConfig

PLACES = ("path", "query", "header", "body", "whole_body")
FRAMING_HEADERS = frozenset(
    (
        *("connection", "content-encoding", "content-length", "expect", "host"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
CREDENTIAL_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"/(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}|\{[^{}?]*\})*(?:\?[^{#]*)?")
_SEPARATOR = re.compile(r"[/\\]|%(?:25)*(?:2f|5c)", re.IGNORECASE)
_DOTS = re.compile(r"(?:\.|%(?:25)*2e){1,2}", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ResponseRule(ToolConfig):
    """The part of a response that the policy sees."""

    select: str = ""
    """Dotted path into a JSON response, such as `data.items` or `results.0`. If the path is empty or does
    not exist, everything is selected."""
    max_items: int | None = Field(default=None, ge=1)
    """Maximum number of items if the selected value is a list; null means all."""


class HttpRequest(ToolConfig):
    """The request that a call of one tool sends; `http.py` explains the keys."""

    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: str
    places: dict[str, str] = Field(default_factory=dict)
    response: ResponseRule = ResponseRule()
    idempotent: bool | None = None

    @property
    def repeatable(self) -> bool:
        """Whether a call may be sent twice."""
        return self.method in ("GET", "HEAD", "OPTIONS") if self.idempotent is None else self.idempotent

    @property
    def resendable(self) -> bool:
        """Whether the request may be sent again after a broken connection.

        A DELETE may not be sent again, although HTTP allows it, because the second one gets a 404 if the first one
        arrived.
        """
        return self.repeatable or (self.idempotent is None and self.method == "PUT")


class HttpEndpoint(HttpRequest):
    """A request, with the name, description and parameters of its tool."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    reusable: bool | None = None

    def request(self, taken: Collection[tuple[str, str]]) -> HttpRequest:
        """Return the request without the tool's fields, with a place for each argument.

        Args:
            taken: (place, name) pairs that the connection fills, with header names in lower case.

        Raises:
            ConfigError: the declaration is invalid.
        """
        properties = self.parameters.get("properties") or {}
        for argument in self.places:
            if argument not in properties:
                raise ConfigError(f"places.{argument}", "there is no such argument", did_you_mean(argument, properties))
        places = {name: self.places.get(name) or _default_place(name, self.method, self.path) for name in properties}
        fields = self.model_dump(include=set(HttpRequest.model_fields), exclude_unset=True)
        request = HttpRequest(**{**fields, "method": self.method, "places": places})
        check_request(request, taken)
        return request


def _default_place(argument: str, method: str, path: str) -> str:
    """Return the place in which an argument is sent if `places` does not list the argument."""
    if argument in _PLACEHOLDER.findall(path):
        return "path"
    return "query" if method in ("GET", "HEAD", "OPTIONS", "DELETE") else "body"


def check_request(request: HttpRequest, taken: Collection[tuple[str, str]]) -> None:
    """Raise ConfigError for an invalid declaration.

    Args:
        request: the request, with a place for each argument.
        taken: (place, name) pairs that the connection fills, with header names in lower case.

    Raises:
        ConfigError: the declaration is wrong; the error names key, value and remedy.
    """
    placeholders = _check_path(request.path)
    used = {**dict.fromkeys(taken, ""), **{("query", name): "" for name in _fixed_query(request.path)}}
    for argument, text in request.places.items():
        key, (place, name) = f"places.{argument}", _split_place(argument, text)
        if place not in PLACES:
            raise ConfigError(key, f"unknown place {text!r}", did_you_mean(place, PLACES))
        if place == "header":
            name = header_name(key, name)
        if other := used.get((place, name)):
            raise ConfigError(key, f"{other!r} is also sent as {place} {name!r}", "Keep one of them")
        if (place, name) in used:
            raise ConfigError(key, f"the {place} {name!r} is set by the configuration", "Use another name")
        if place == "path" and name not in placeholders:
            raise ConfigError(key, f"{request.path!r} has no {{{name}}}", "Add it to the path")
        used[place, name] = argument
    for name in placeholders:
        if ("path", name) not in used:
            problem = f"no argument fills {{{name}}} (value {request.path!r})"
            raise ConfigError("path", problem, "Add it to the parameters")
    bodies = [argument for (place, _), argument in used.items() if place in ("body", "whole_body")]
    if bodies and request.method in ("GET", "HEAD", "OPTIONS"):
        raise ConfigError(f"places.{bodies[0]}", f"{request.method} has no body", "Send it in the query")
    if len(bodies) > 1 and any(place == "whole_body" for place, _ in used):
        problem = f"{', '.join(bodies)} cannot be sent with a whole_body"
        raise ConfigError("places", problem, "Keep only the whole_body")


def build(request: HttpRequest, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the percent-encoded path for these arguments, and the request's `params`, `headers` and `json`.

    Raises:
        ToolError: a value is not allowed in its place; the policy reads the text.
    """
    values: dict[str, dict[str, Any]] = {place: {} for place in PLACES}
    for argument, value in arguments.items():
        if argument not in request.places:
            raise ToolError(f"unknown argument {argument!r}. {did_you_mean(argument, request.places)}")
        place, name = _split_place(argument, request.places[argument])
        if value is not None or place == "body":
            values[place][name] = value
    params: dict[str, str | list[str]] = {**_fixed_query(request.path)}
    for name, value in values["query"].items():
        params[name] = [_text(item) for item in value] if isinstance(value, list) else _text(value)
    has_body = any(text.partition(":")[0] == "body" for text in request.places.values())
    body = values["body"] if has_body else next(iter(values["whole_body"].values()), None)
    headers = {name: _header_value(name, value) for name, value in values["header"].items()}
    return _fill(request.path, values["path"]), {"params": params, "headers": headers, "json": body}


def _split_place(argument: str, text: str) -> tuple[str, str]:
    """Split `query` or `query:name` into the place and the name in the request."""
    place, _, name = text.partition(":")
    return place, name or argument


def _fill(template: str, values: Mapping[str, Any]) -> str:
    place = template.partition("?")[0]
    texts = {name: _path_value(name, values.get(name)) for name in _PLACEHOLDER.findall(place)}
    plain = _PLACEHOLDER.sub(lambda match: texts[match[1]], place)
    if any(_DOTS.fullmatch(segment) for segment in plain.split("/")):
        raise ToolError("'.' and '..' cannot be part of the path")
    return _PLACEHOLDER.sub(lambda match: quote(texts[match[1]], safe=""), place)


def _path_value(name: str, value: Any) -> str:
    text = "" if value is None else _text(value)
    if not text:
        raise ToolError(f"{name!r} must not be empty: it is part of the path")
    if _SEPARATOR.search(text) or _CONTROL.search(text):
        raise ToolError(f"{name!r} must not contain a slash, a backslash or a control character")
    return text


def _header_value(name: str, value: Any) -> str:
    text = _text(value).strip(" ")
    if not (text.isascii() and text.isprintable()):
        raise ToolError(f"{name!r} must be one line of ASCII: it is sent as a header")
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return json.dumps(value, ensure_ascii=False)


def _fixed_query(path: str) -> dict[str, list[str]]:
    return parse_qs(path.partition("?")[2], keep_blank_values=True)


def _check_path(path: str) -> list[str]:
    """Check a path template and return its placeholders."""
    if not _PATH.fullmatch(path):
        remedy = "Write /fixed/{argument}?fixed=value, percent-encoded; `places` lists the query's arguments"
        raise ConfigError("path", f"the path is not valid (value {path!r})", remedy)
    place = path.partition("?")[0]
    if any(_DOTS.fullmatch(segment) for segment in place.split("/")):
        raise ConfigError("path", f"the path must not contain '.' or '..' (value {path!r})", "Write the full path")
    names = _PLACEHOLDER.findall(place)
    if len(set(names)) < len(names):
        raise ConfigError("path", f"a placeholder occurs twice (value {path!r})", "Use different names")
    return names


def header_name(key: str, name: str, reserved: Collection[str] = FRAMING_HEADERS | CREDENTIAL_HEADERS) -> str:
    """Return the name of a header in lower case.

    Raises:
        ConfigError: a header cannot have this name, or the name is reserved.
    """
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError(key, f"{name!r} cannot be a header's name", "Use a name such as X-My-Name")
    if name.lower() in reserved:
        raise ConfigError(key, f"the {name!r} header is reserved", "Use another name; a key belongs in `auth`")
    return name.lower()
