"""The connection of an `http` entry: one `Remote` for all of its tools, and its credentials, which stay hidden.

The credentials are read from the environment when the connection is created. Credentials appear only in requests, never
in a config, error or log; if a response contains a credential, the policy sees `***` instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from typing import Literal

import httpx
from pydantic import Field

from agent_rl.errors import ConfigError
from agent_rl.remote import Remote, RemoteLimits
from agent_rl.settings.secrets import SHORTEST_SECRET, Secrets, secret
from agent_rl.tools.base import ToolConfig
from agent_rl.tools.builtin._http.request import FRAMING_HEADERS, header_name


class Auth(ToolConfig):
    """The credentials of a connection."""

    type: Literal["bearer", "header", "query", "basic"]
    env: str
    """Environment variable that contains the key or, for `basic`, user:password."""
    name: str | None = None
    """Name of the header or the query parameter."""


class HttpConnection(RemoteLimits):
    """Settings shared by the tools of one entry; `http.py` explains the keys."""

    timeout_s: float = Field(default=10.0, gt=0)
    total_s: float = Field(default=40.0, gt=0)
    attempts: int = Field(default=4, ge=1)
    base_url: str
    allow_hosts: list[str] = Field(default_factory=list)
    auth: Auth | None = None
    headers: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Service:
    """A connection that is ready for use."""

    remote: Remote
    base_url: str
    params: Mapping[str, str]
    """Query parameters with the credential, if it is sent in the query."""
    secrets: Secrets
    taken: frozenset[tuple[str, str]]
    """(place, name) pairs that no argument may set, with header names in lower case."""
    has_auth: bool


def connect(connection: HttpConnection) -> Service:
    """Return the service for these settings; equal settings in one process share the service and its limits.

    Raises:
        ConfigError: a setting is wrong; the error names key, value and remedy.
    """
    value = "" if connection.auth is None else _credential(connection.auth)
    fields = connection.model_dump(include=set(HttpConnection.model_fields))
    return _connected(json.dumps(fields, sort_keys=True), value)


@lru_cache(maxsize=256)
def _connected(fields: str, value: str) -> Service:
    connection = HttpConnection.model_validate_json(fields)
    headers = _checked_headers(connection.headers)
    params: dict[str, str] = {}
    hidden = [value] if value else []
    auth = connection.auth
    if auth is not None and auth.type == "basic":
        encoded = base64.b64encode(value.encode()).decode()
        user, _, password = value.partition(":")
        hidden += [encoded, password or user]
        headers["authorization"] = f"Basic {encoded}"
    elif auth is not None and auth.type == "bearer":
        headers["authorization"] = f"Bearer {value}"
    elif auth is not None and auth.type == "query":
        params[auth.name or ""] = value
    elif auth is not None:
        headers[header_name("auth.name", auth.name or "", FRAMING_HEADERS | set(headers))] = value
    taken = {("header", name) for name in headers} | {("query", name) for name in params}
    limits = RemoteLimits(**connection.model_dump(include=set(RemoteLimits.model_fields)))
    hosts = _hosts(connection)
    remote = Remote(headers=headers, limits=limits, allow_hosts=hosts)
    base_url = connection.base_url.rstrip("/")
    return Service(remote, base_url, params, Secrets(hidden), frozenset(taken), auth is not None)


def _credential(auth: Auth) -> str:
    value = secret(auth.env, key="auth.env")
    if len(value) < SHORTEST_SECRET:
        raise ConfigError("auth.env", f"{auth.env} has fewer than {SHORTEST_SECRET} characters", "Set the complete key")
    if auth.type == "basic" and ":" not in value:
        raise ConfigError("auth.env", f"{auth.env} has no colon", "Set the variable to user:password")
    if (auth.name is None) != (auth.type in ("bearer", "basic")):
        remedy = "Remove it" if auth.name else f"Set the name of the {auth.type}"
        raise ConfigError("auth.name", f"{auth.name!r} does not match type {auth.type!r}", remedy)
    return value


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Check the headers and return them with lower-case names."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(f"headers.{name}", f"the header must be one line of ASCII (value {value!r})", "Change it")
    return {header_name(f"headers.{name}", name): value for name, value in headers.items()}


def _hosts(connection: HttpConnection) -> list[str]:
    try:
        url = httpx.URL(connection.base_url)
    except httpx.InvalidURL as error:
        raise ConfigError("base_url", f"{error} (value {connection.base_url!r})", "Write https://host/path") from None
    if url.userinfo:
        raise ConfigError("base_url", "the URL contains credentials", "Write auth: {type: basic, env: VARIABLE}")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ConfigError("base_url", f"the URL is invalid (value {connection.base_url!r})", "Write https://host/path")
    hosts = [host.lower() for host in connection.allow_hosts] or [url.host]
    if not any(fnmatch(url.host, host) for host in hosts):
        raise ConfigError("allow_hosts", f"{hosts} does not include the base_url's host", f"Add {url.host}")
    return hosts
