"""`Gate`: ASGI middleware that checks the token, size and number of requests, and counts the requests in `Metrics`.

The gate rejects a request before reading the body if possible, and forwards only complete bodies to the application.
The gate reads bodies only at the endpoints; at other paths, a client that never finishes its body still gets an answer.
"""

from __future__ import annotations

import hmac
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from agent_rl.rewards.service.wire import Answer, Unscored

__all__ = ["ENDPOINTS", "Gate", "Metrics"]

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """Prometheus metrics of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        prefix, registry = "agent_rl_reward", self._registry
        self.requests = Counter(f"{prefix}_requests", "Requests", ["endpoint", "status"], registry=registry)
        self.seconds = Histogram(
            f"{prefix}_request_seconds", "Seconds per request", ["endpoint"], registry=registry, buckets=BUCKETS_S
        )
        self.in_flight = Gauge(f"{prefix}_requests_in_flight", "Open requests", ["endpoint"], registry=registry)
        self._trajectories = Counter(
            f"{prefix}_trajectories", "Scored and unscored items", ["endpoint", "outcome"], registry=registry
        )

    def answered(self, endpoint: str, answers: Sequence[Answer]) -> None:
        """Count the scored and the unscored items of one request."""
        tally = Tally("unscored" if isinstance(answer, Unscored) else "scored" for answer in answers)
        for outcome, count in tally.items():
            self._trajectories.labels(endpoint, outcome).inc(count)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ENDPOINTS = {"/get_reward": "rules", "/get_reward2": "judge"}
"""The paths of the endpoints, and the section of the configuration that each one uses."""
PROTECTED = (*ENDPOINTS, "/metrics")
"""Paths that require the token; `/health` and the documentation do not."""
CLIENT_LEFT = 499
"""The status to count if the client disconnects before the answer."""
RETRY_AFTER_S = 1
READ_S = 60.0
"""Time limit for receiving a body, in seconds."""


class Refused(Exception):
    """The gate answers the request with this error, and does not forward it."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers


class Gate:
    """Forwards allowed requests to the application, and rejects the others.

    Args:
        app: the wrapped application.
        metrics: counts every request to the endpoints.
        token: the token required in `Authorization: Bearer`; None: no token is required.
        max_requests: maximum number of open requests to the endpoints.
        max_bytes: maximum size of a body.
    """

    def __init__(self, app: App, metrics: Metrics, *, token: str | None, max_requests: int, max_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._token = None if token is None else f"Bearer {token}".encode()
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._open = 0
        self.closing = False
        """Whether the service is shutting down and rejects new requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] not in ENDPOINTS:
            await self._forward(scope, receive, send)
            return
        path, metrics, status = scope["path"], self._metrics, CLIENT_LEFT

        async def send_and_record(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._open += 1
        try:
            with metrics.in_flight.labels(path).track_inprogress(), metrics.seconds.labels(path).time():
                await self._forward(scope, receive, send_and_record)
        finally:
            self._open -= 1
            metrics.requests.labels(path, str(status)).inc()

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            if scope["path"] in ENDPOINTS:
                receive = _replay(await _read(receive, self._max_bytes), receive)
        except Refused as refused:
            response = JSONResponse({"error": str(refused)}, refused.status, refused.headers)
            await response(scope, receive, send)
            return
        except ClientDisconnect:
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers, token = dict(scope["headers"]), self._token
        authorization = headers.get(b"authorization", b"")
        if token is not None and scope["path"] in PROTECTED and not hmac.compare_digest(authorization, token):
            raise Refused(401, "the token is missing or wrong", **{"www-authenticate": "Bearer"})
        is_endpoint = scope["path"] in ENDPOINTS
        if self.closing or (is_endpoint and self._open > self._max_requests):
            problem = "the service is shutting down" if self.closing else f"{self._max_requests} requests are open"
            raise Refused(503, problem, **{"retry-after": str(RETRY_AFTER_S), "connection": "close"})
        if not is_endpoint:
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            raise Refused(413, _too_large(self._max_bytes), connection="close")
        if not headers.get(b"content-type", b"").startswith(b"application/json"):
            raise Refused(415, "the body must be JSON: send it with Content-Type: application/json", connection="close")


async def _read(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    try:
        with anyio.fail_after(READ_S):
            async for chunk in Request({"type": "http"}, receive).stream():
                body += chunk
                if len(body) > limit:
                    raise Refused(413, _too_large(limit), connection="close")
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {READ_S:g} s", connection="close") from None
    return bytes(body)


def _too_large(limit: int) -> str:
    return f"the body has more than {limit} bytes: send fewer items per request"


def _replay(body: bytes, receive: Receive) -> Receive:
    """Create a `receive` that returns the body first, and then calls the original one."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return first.pop() if first else await receive()

    return replay
