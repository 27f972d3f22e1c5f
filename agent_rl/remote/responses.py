"""The outcome of an HTTP request: a `Response` with a body of limited size, or a `RemoteError`.

`agent_rl.remote.http` sends the requests.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from agent_rl.errors import UnscoredError


class RemoteError(UnscoredError):
    """Raised when a remote service returned no usable response.

    Args:
        host: the service's host name and port.
        problem: a description of what went wrong in the last attempt.
        status: the last HTTP status, or None if no response was received.
        attempts: number of attempts; 0 if the request was not sent because the circuit is open.
    """

    def __init__(self, host: str, problem: str, status: int | None = None, attempts: int = 1) -> None:
        super().__init__(f"{host}: {problem}" + (f" (attempt {attempts})" if attempts > 1 else ""))
        self.host = host
        self.problem = problem
        self.status = status
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, ...]:  # makes the error picklable, so that it can cross process boundaries
        return type(self), (self.host, self.problem, self.status, self.attempts)


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response with its body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """Values of the headers, by lower-case header name."""
    content: bytes = field(repr=False)
    truncated: bool
    """Whether the body was longer than `max_bytes`."""
    url: str = field(repr=False)
    """The final URL, after redirects; it may contain secrets."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def host(self) -> str:
        """Name and port of the host that answered."""
        return host_of(httpx.URL(self.url))

    @property
    def text(self) -> str:
        """The body as text, in the encoding of its content type (default UTF-8); undecodable bytes are replaced."""
        charset = httpx.Response(200, headers={"content-type": self.headers.get("content-type", "")}).charset_encoding
        try:
            return self.content.decode(charset or "utf-8", "replace")
        except (LookupError, UnicodeError):  # the encoding is unknown, or is not a text encoding
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body, parsed as JSON.

        Raises:
            RemoteError: the body is not JSON, or is longer than `max_bytes`.
        """
        if self.truncated:
            raise RemoteError(self.host, f"the answer is longer than {len(self.content)} bytes", self.status)
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise RemoteError(self.host, f"the answer is not JSON (status {self.status})", self.status) from None


async def read_body(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of the body, and whether the body is longer; the rest is not read into memory."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "x-gzip", "deflate") else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk[: limit + 1] if decoder is None else decoder.decompress(chunk, limit + 1 - len(body))
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


def wait_wanted_s(value: str | None) -> float | None:
    """Return the delay in seconds from a Retry-After header (a number or an HTTP date), or None if it is unusable."""
    if not value:
        return None
    try:
        seconds = float(value) if value[0].isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
        return max(0.0, seconds)
    except (ValueError, TypeError, OverflowError):
        return None


def host_of(url: httpx.URL) -> str:
    """Return the host name and port of a URL."""
    return f"{url.host}:{url.port}" if url.port else url.host
