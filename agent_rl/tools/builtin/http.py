"""`http`: tools from the endpoints of an HTTP API, declared in YAML.

    tools:
      - name: http
        config:
          base_url: https://api.example.com/v1
          allow_hosts: [api.example.com]    # default: the base_url's host; also for redirects
          auth: {type: bearer, env: EXAMPLE_API_KEY}  # or header, query (with `name`), basic (env: user:password)
          headers: {Accept: application/json}
          timeout_s: 10                     # for one attempt; total_s and attempts limit all attempts
          max_concurrent: 16                # concurrent requests per process; see also rate_per_s, max_bytes
          endpoints:
            - name: get_weather
              description: The weather in a city.
              method: GET
              path: /weather/{city}?format=json
              parameters: {type: object, properties: {...}, required: [city]}
              places: {units: query, day: "query:filter[day]"}
              response: {select: data.items, max_items: 5}
              idempotent: true

`places` sets where an argument is sent: path, query, header, body (one key of a JSON object) or whole_body, and its
name there, if it differs. By default, an argument is sent in the path if the path contains it, in the query for
GET and DELETE, and otherwise in the body. `idempotent` (by default true for GET, HEAD and OPTIONS) means that a call
may be sent twice; `reusable: true` means that the response never changes, so a repeated call gets the earlier result.

The policy reads a 4xx as an error; a 429, a 5xx and connection problems leave the trajectory unscored after the last
attempt, as does a 401 if the entry sets `auth`. Responses from allowed hosts are not checked for harmful content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import Field

from agent_rl.errors import ToolError
from agent_rl.remote import RemoteError, Response
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.secrets import Secrets
from agent_rl.tools.base import Tool
from agent_rl.tools.builtin._http.connection import HttpConnection, connect
from agent_rl.tools.builtin._http.request import HttpEndpoint, HttpRequest, ResponseRule, build, check_request
from agent_rl.tools.spec import Toolset, ToolSpec
from agent_rl.tools.truncation import shortened

MAX_ERROR_CHARS = 1000
"""Maximum number of characters of an error response's body that the policy sees."""


class _HttpConfig(HttpConnection):
    endpoints: list[HttpEndpoint] = Field(min_length=1)


class _HttpToolConfig(HttpConnection):
    request: HttpRequest

    def model_post_init(self, _: object) -> None:
        """Raise an error for a request that cannot be sent, or a key that is not in the environment."""
        service = connect(self)
        with Place("request").around():
            check_request(self.request, service.taken)


class HttpTool(Tool):
    """A tool for one endpoint; `Http.tools` creates the tool's config, with `request` instead of `endpoints`."""

    Config = _HttpToolConfig
    settings: _HttpToolConfig
    outside = True

    async def start(self) -> None:
        """Keep the connections open until the trajectory ends."""
        self._service = connect(self.settings)
        await self.scope.get(self._service.remote, lambda: self._service.remote)

    async def call(self, arguments: dict[str, Any]) -> str:
        """Send one request and return its answer."""
        service, request = self._service, self.settings.request
        try:
            path, parts = build(request, arguments)
            parts["params"] = {**parts["params"], **service.params} or None
            response = await service.remote.request(
                request.method, service.base_url + path, idempotent=request.resendable, **parts
            )
        except ValueError as error:  # the URL is too long, or contains invalid Unicode
            raise ToolError(service.secrets.hide(f"the request cannot be sent: {error}")) from None
        if response.status == 401 and service.has_auth:
            raise RemoteError(response.host, "the credentials in the configuration were rejected", 401)
        if not response.ok:
            raise ToolError(_error_text(response, service.secrets))
        text = _show(response, request.response)
        text = service.secrets.hide(text, cut=response.truncated)
        return f"{text}\n(cut after {len(response.content)} bytes)" if response.truncated else text


class IdempotentHttpTool(HttpTool):
    """An endpoint whose calls may be sent twice."""

    idempotent = True
    retries = 0  # `Remote` does its own retries


class Http(Toolset):
    """The endpoints of one API."""

    name = "http"

    @classmethod
    def tools(cls, config: Mapping[str, Any]) -> list[ToolSpec]:
        """Return one tool per endpoint."""
        parsed = validated(_HttpConfig, config)
        taken = connect(parsed).taken
        limits = 2 * parsed.total_s, parsed.max_concurrent  # twice, because another endpoint's request may fail first
        connection = {key: value for key, value in config.items() if key != "endpoints"}
        specs = []
        for index, endpoint in enumerate(parsed.endpoints):
            with Place(f"endpoints[{index}] ({endpoint.name})").around():
                request = endpoint.request(taken)
            kind = IdempotentHttpTool if request.repeatable else HttpTool
            parameters = {"properties": {}, "additionalProperties": False, **endpoint.parameters}
            own = {**connection, "request": request.model_dump(exclude_unset=True)}
            texts = endpoint.name, endpoint.description
            specs.append(ToolSpec(*texts, parameters, kind, own, *limits, reusable=endpoint.reusable))
        return specs


def _show(response: Response, rule: ResponseRule) -> str:
    """Format a body for the policy: JSON on one line, text unchanged, anything else as its type and size."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.content:
        return f"[{_status(response)}, no content]"
    if kind.endswith("json") or not kind:
        try:
            return _show_json(json.loads(response.content), rule)
        except (ValueError, RecursionError):  # the response is truncated, or is not JSON
            pass
    textual = kind.startswith("text/") or kind.endswith(("json", "xml", "javascript", "x-www-form-urlencoded"))
    if (textual or not kind) and b"\0" not in response.content:
        return response.text
    return f"[{kind or 'unknown type'}, {'more than ' if response.truncated else ''}{len(response.content)} bytes]"


def _show_json(value: Any, rule: ResponseRule) -> str:
    value = _selected(value, rule.select)
    more = ""
    if isinstance(value, list) and rule.max_items is not None and len(value) > rule.max_items:
        more = f"\n({len(value) - rule.max_items} more items)"
        value = value[: rule.max_items]
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) + more


def _selected(value: Any, path: str) -> Any:
    """Return the part of `value` at the path, or all of `value` if the path does not exist in it."""
    part = value
    for name in path.split(".") if path else []:
        if isinstance(part, dict) and name in part:
            part = part[name]
        elif isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        else:
            return value
    return part


def _error_text(response: Response, secrets: Secrets) -> str:
    if 300 <= response.status < 400:
        return f"{_status(response)}: a redirect that is not followed"
    body = secrets.hide(_show(response, ResponseRule()), cut=response.truncated) if response.content else ""
    return f"{_status(response)}: {shortened(body, MAX_ERROR_CHARS)}" if body else _status(response)


def _status(response: Response) -> str:
    try:
        return f"HTTP {response.status} {HTTPStatus(response.status).phrase}"
    except ValueError:  # an unregistered status code
        return f"HTTP {response.status}"
