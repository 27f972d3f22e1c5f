"""`Gate`: checks the token, size and number of requests to the endpoints, and counts the requests in `Metrics`.

If possible, the gate rejects a request before reading its body. Only the endpoints read bodies; at other paths, a
client that never finishes its body still gets an answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect

from agent_rl.rewards.service.wire import Answer, Unscored

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
        for answer in answers:
            outcome = "unscored" if isinstance(answer, Unscored) else "scored"
            self._trajectories.labels(endpoint, outcome).inc()

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()


ENDPOINTS = {"/get_reward": "rules", "/get_reward2": "judge"}
"""Maps the path of each endpoint to the endpoint's section of the configuration."""
CLIENT_LEFT = 499
"""The status to count if the client disconnects before its body is complete."""
RETRY_AFTER_S = "1"
READ_S = 60.0
"""Time limit for receiving a body, in seconds."""
_CLOSE = {"connection": "close"}

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


class GatedRoute(APIRoute):
    """A route whose requests pass through the `Gate` of its application, `app.state.gate`."""

    def get_route_handler(self) -> Handle:
        """Return the function that answers a request."""
        handle = super().get_route_handler()

        async def gated(request: Request) -> Response:
            gate: Gate = request.app.state.gate
            return await gate.answer(handle, request)

        return gated


class Gate:
    """Forwards allowed requests to an endpoint, and rejects the others.

    Args:
        token: the token required in `Authorization: Bearer`; if None, no token is required.
        max_requests: maximum number of open requests to the endpoints.
        max_bytes: maximum size of a request's body, in bytes.
    """

    def __init__(self, *, token: str | None, max_requests: int, max_bytes: int) -> None:
        self.metrics = Metrics()
        self._token = None if token is None else f"Bearer {token}".encode()
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._open = 0

    def check_token(self, request: Request) -> None:
        """Check the request's token.

        Raises:
            HTTPException: the token is missing or wrong.
        """
        authorization = request.headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not hmac.compare_digest(authorization, self._token):
            raise HTTPException(401, "the token is missing or wrong", {"www-authenticate": "Bearer"})

    async def answer(self, handle: Handle, request: Request) -> Response:
        """Check a request, let `handle` answer it, and count it under the status of the response."""
        path, metrics, status = request.url.path, self.metrics, 500
        self._open += 1
        try:
            with metrics.in_flight.labels(path).track_inprogress(), metrics.seconds.labels(path).time():
                self._check(request)
                response = await handle(_Limited(request, self._max_bytes))
                status = response.status_code
                return response
        except HTTPException as error:
            status = error.status_code
            raise
        except RequestValidationError:
            status = 422
            raise
        finally:
            self._open -= 1
            metrics.requests.labels(path, str(status)).inc()

    def _check(self, request: Request) -> None:
        self.check_token(request)
        if self._open > self._max_requests:
            headers = {**_CLOSE, "retry-after": RETRY_AFTER_S}
            raise HTTPException(503, f"{self._max_requests} requests are open", headers)
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_bytes:
            raise _too_large(self._max_bytes)
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise HTTPException(415, "the body must be JSON: send it with Content-Type: application/json", _CLOSE)


class _Limited(Request):
    """A request whose body has a limited size, and must arrive in time."""

    def __init__(self, request: Request, limit: int) -> None:
        super().__init__(request.scope, request.receive)
        self._limit = limit

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            body = bytearray()
            try:
                with anyio.fail_after(READ_S):
                    async for chunk in self.stream():
                        body += chunk
                        if len(body) > self._limit:
                            raise _too_large(self._limit)
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {READ_S:g} s", _CLOSE) from None
            except ClientDisconnect:
                raise HTTPException(CLIENT_LEFT, "the client disconnected") from None
            self._body = bytes(body)
        return self._body


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body has more than {limit} bytes: send fewer items per request", _CLOSE)
