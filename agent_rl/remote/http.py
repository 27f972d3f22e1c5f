"""`Remote`: makes the package's outgoing HTTP calls, with retries, and limits their time, size, rate and concurrency.

    remote = Remote("http://localhost:8080", limits=RemoteLimits(timeout_s=10, max_concurrent=64))
    answer = await remote.post_json("/run_code", {"code": "print(1)"})

`Remote` retries after connection errors, timeouts and the statuses 408, 425, 429 and 5xx. Before a retry, `Remote`
waits as long as the server's Retry-After header requests, or else backs off exponentially with jitter. If no attempt
succeeds in time, a `RemoteError` leaves the trajectory unscored. Any other status is returned as a `Response`.

Cookies are not kept, so trajectories that share a `Remote` cannot see each other's data. Errors and logs contain the
host, but never a header, a query string or a password. `Remote` also sends requests to private addresses.

Requests to this machine and its network are sent directly; all others go through the proxies set in the environment
(`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`). `SSL_CERT_FILE` applies to direct and to proxied requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from ssl import SSLContext
from typing import Any

import anyio
import httpx
from pydantic import Field

from agent_rl.remote.rate import Rate
from agent_rl.remote.responses import RemoteError, Response, host_of, read_body, wait_wanted_s
from agent_rl.settings.errors import Section
from agent_rl.settings.secrets import Secrets, secret
from agent_rl.work.concurrency import PerLoop

logger = logging.getLogger(__name__)

MAX_REDIRECTS = 5
CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_S = 2.0
"""Seconds for which an idle connection stays open: shorter than the idle timeouts of servers (5 s or more), so that no
server closes a connection during a request."""
KEPT_CONNECTIONS = 4
"""Maximum number of idle connections, to different hosts, that one client keeps."""
SERVER_URL = r"^https?://([^\s/@]*@)?([^\s/:@\[\]]+|\[[^\s/\]]+\])(:[0-9]{1,5})?([/?#]|$)"
"""Pattern for a server's address: a host, a port that is a number, and perhaps a path."""
FIRST_DELAY_S, LONGEST_DELAY_S, JITTER_S = 0.2, 8.0, 1.0
_MIN_SECRET = 8  # minimum length of a header word to hide, because shorter words also occur in ordinary text
_MAX_EXCERPT = 200  # maximum number of characters that an error message quotes from a response body
_KEPT_ACROSS_HOSTS = {"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"}


class RemoteLimits(Section):
    """Limits on the requests of a `Remote`; a tool's config model may inherit them."""

    timeout_s: float = Field(default=30.0, gt=0)
    """Timeout of one attempt in seconds, from connecting to the last byte."""
    total_s: float = Field(default=120.0, gt=0)
    """Timeout of all attempts in seconds, including the delays between them but not the wait for a free slot."""
    attempts: int = Field(default=6, ge=1)
    max_concurrent: int = Field(default=32, ge=1)
    """Maximum number of concurrent requests per process, including requests that wait for their next attempt."""
    rate_per_s: float | None = Field(default=None, gt=0)
    """Maximum number of attempts per second to a server, evenly spaced, from all processes of a node; null means no
    limit."""
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1)
    """Maximum number of bytes to read from a body, after decompression; the rest is dropped."""


def bearer(variable: str | None, key: str) -> dict[str, str]:
    """Return the headers with the API key from an environment variable, or no headers if `variable` is None.

    Raises:
        ConfigError: the variable is not set; the error names the configuration key `key`.
    """
    return {} if variable is None else {"Authorization": f"Bearer {secret(variable, key=key)}"}


@dataclass(eq=False)
class _Failure(Exception):
    """Raised when one attempt received no usable response."""

    problem: str
    status: int | None = None
    retry_after_s: float | None = None
    unsent: bool = False
    """Whether it is certain that the server did not receive the request."""

    def may_repeat(self, idempotent: bool) -> bool:
        return idempotent or self.unsent or (self.status in (429, 503) and self.retry_after_s is not None)

    def pause_s(self, attempts: int) -> float:
        """Return the seconds until the next attempt: the delay that the server requests, or an exponential back-off."""
        if self.retry_after_s is not None:
            return max(self.retry_after_s, FIRST_DELAY_S) * random.uniform(1, 1.1)
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempts - 1, 10) + random.uniform(0, JITTER_S))


@dataclass(slots=True)
class _Lane:
    """The state of a `Remote` in one event loop."""

    slots: asyncio.Semaphore
    idle: dict[bool, list[httpx.AsyncClient]] = field(default_factory=lambda: {True: [], False: []})
    """Idle clients; the key says whether they are for near hosts (`is_near`). Concurrent requests use separate clients,
    because a client scans all its connections for every request: each of 500 requests takes 9 ms of CPU time with one
    shared client, and 1.7 ms with separate clients."""
    users: int = 0


class Remote:
    """An HTTP client for one or more services with the same limits; a process shares one object per service.

    Connections stay open while a caller is inside `async with remote`, which may be nested and shared; outside it, each
    request opens and closes a connection. Several event loops may use a `Remote` concurrently, each with up to
    `max_concurrent` requests.

    Args:
        base_url: prefix for relative URLs.
        headers: sent with every request, for example `{"Authorization": f"Bearer {secret('JUDGE_API_KEY')}"}`.
        limits: see `RemoteLimits`.
        allow_hosts: names of the hosts that may receive requests, with shell wildcards (`*.wikipedia.org`). Redirects
            between these hosts are followed, except from https to http. None allows all hosts, but no redirects.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        limits: RemoteLimits | None = None,
        allow_hosts: Collection[str] | None = None,
    ) -> None:
        self.limits = limits or RemoteLimits()
        self._base_url = base_url
        self._headers = {"accept-encoding": "gzip", **(headers or {})}
        self._allow_hosts = None if allow_hosts is None else [host.lower() for host in allow_hosts]
        words = [word for value in (headers or {}).values() for word in value.split()]  # "Bearer" and the token
        self._secrets = Secrets(word for word in words if len(word) >= _MIN_SECRET)
        self._rate = Rate(self.limits.rate_per_s) if self.limits.rate_per_s else None
        self._lanes = PerLoop(lambda: _Lane(asyncio.Semaphore(self.limits.max_concurrent)))

    async def __aenter__(self) -> Remote:
        self._lanes.get().users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        lane = self._lanes.get()
        lane.users -= 1
        if lane.users == 0:
            for clients in lane.idle.values():
                while clients:
                    await clients.pop().aclose()

    async def post_json(self, url: str, payload: Any, *, idempotent: bool = True) -> Any:
        """POST `payload` as JSON, and return the response body, parsed as JSON.

        Raises:
            RemoteError: the request failed, the status is not 2xx, or the response is not JSON.
        """
        response = await self.request("POST", url, json=payload, idempotent=idempotent)
        if not response.ok:
            raise RemoteError(response.host, self.problem(response), response.status)
        return response.json()

    def problem(self, response: Response) -> str:
        """Describe a response for an error message: its status and the start of its body, in which values of the
        request's headers are hidden.
        """
        return f"status {response.status}: {self._secrets.hide(response.text)[:_MAX_EXCERPT]}"

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool = True,
    ) -> Response:
        """Send a request, with retries, and return the response.

        Args:
            method: the HTTP method, for example `GET`.
            url: an absolute URL, or a path that is appended to `base_url`.
            params: the parameters of the query string.
            json: a body to send as JSON.
            content: a body to send unchanged.
            headers: headers in addition to those of the `Remote`.
            idempotent: whether sending the request twice has the same effect as sending it once. A request that is not
                idempotent is retried only if the server did not receive it, or answers 429 or 503 with Retry-After.

        Raises:
            RemoteError: there was no response within the limits.
            ValueError: the URL or a header cannot be sent, or the host is not allowed.
        """
        lane = self._lanes.get()
        try:
            host = httpx.URL(url).host or httpx.URL(self._base_url).host
            async with self, lane.slots:
                with self._client(lane, host) as client:
                    request = client.build_request(
                        method, url, params=params, json=json, content=content, headers=headers
                    )
                    self._check(request.url)
                    await self._turn(request.url)
                    return await self._until_answered(client, request, idempotent)
        except httpx.InvalidURL as error:
            raise ValueError(f"the URL is not valid: {error}") from None

    async def _turn(self, url: httpx.URL) -> None:
        if self._rate is not None:
            try:
                await self._rate.turn(url.netloc.decode())
            except OSError as error:
                problem = f"rate_per_s needs a writable temporary folder (see TMPDIR): {error}"
                raise RemoteError(host_of(url), problem) from error

    async def _until_answered(self, client: httpx.AsyncClient, request: httpx.Request, idempotent: bool) -> Response:
        limits, host = self.limits, host_of(request.url)
        deadline = time.monotonic() + limits.total_s
        number, last = 0, _Failure("no answer")
        with anyio.move_on_after(limits.total_s) as total:
            while True:
                number += 1
                try:
                    return await self._attempt(client, request)
                except _Failure as failure:
                    last = failure
                logger.info("%s: %s (attempt %d)", host, last.problem, number)
                pause_s = last.pause_s(number)
                too_late = last.retry_after_s is not None and time.monotonic() + pause_s >= deadline
                if too_late or number == limits.attempts or not last.may_repeat(idempotent):
                    break
                await anyio.sleep(pause_s)
                await self._turn(request.url)
        problem = last.problem + (f"; gave up after {limits.total_s:g} s" if total.cancelled_caught else "")
        raise RemoteError(host, problem, last.status, number) from last.__cause__

    async def _attempt(self, client: httpx.AsyncClient, request: httpx.Request) -> Response:
        try:
            with anyio.fail_after(self.limits.timeout_s):
                response = await self._follow(client, request)
                try:
                    content, truncated = await read_body(response, self.limits.max_bytes)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise _Failure(f"cannot connect: {str(error) or type(error).__name__}", unsent=True) from error
        except TimeoutError as error:
            raise _Failure(f"no answer within {self.limits.timeout_s:g} s") from error
        except httpx.LocalProtocolError:  # the original error is dropped, because its message quotes the header
            raise ValueError("a header of the request cannot be sent") from None
        except (httpx.TransportError, zlib.error) as error:
            raise _Failure(f"the connection broke: {type(error).__name__}") from error
        status = response.status_code
        if status in (408, 425, 429) or status >= 500:
            wanted_s = wait_wanted_s(response.headers.get("retry-after"))
            raise _Failure(f"status {status}", status=status, retry_after_s=wanted_s)
        return Response(status, dict(response.headers.items()), content, truncated, str(response.url))

    async def _follow(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        """Follow all allowed redirects, and return the final response without reading its body."""
        for number in range(MAX_REDIRECTS + 1):
            response = await client.send(request, stream=True)
            target = response.next_request
            if number == MAX_REDIRECTS or target is None or not self._may_follow(request, target):
                break
            await response.aclose()
            request = _redirected(request, target)
        return response

    @contextlib.contextmanager
    def _client(self, lane: _Lane, host: str) -> Iterator[httpx.AsyncClient]:
        """Reserve an idle or new client for one request."""
        near = is_near(host)
        try:
            client = lane.idle[near].pop() if lane.idle[near] else self._new_client(near)
        except UnicodeError:  # the original error is dropped, because it quotes part of the header
            raise ValueError("a header of the request cannot be sent") from None
        except (ImportError, ValueError) as error:
            raise RemoteError(host, f"the proxy set in the environment cannot be used: {error}") from None
        try:
            yield client
        finally:
            lane.idle[near].append(client)

    def _new_client(self, near: bool) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._base_url,
            headers=self._headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx.Limits(max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=KEEPALIVE_S),
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, self.limits.timeout_s)),
            trust_env=not near,
            verify=certificates(),
        )

    def _check(self, url: httpx.URL) -> None:
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("the URL is not valid: it must start with http:// or https:// and a host")
        if not self._allowed(url):
            raise ValueError(f"the host {url.host!r} is not allowed")

    def _allowed(self, url: httpx.URL) -> bool:
        return self._allow_hosts is None or any(fnmatch(url.host, host) for host in self._allow_hosts)

    def _may_follow(self, request: httpx.Request, target: httpx.Request) -> bool:
        secure = target.url.scheme in ("https", request.url.scheme)
        return self._allow_hosts is not None and self._allowed(target.url) and secure


def _redirected(request: httpx.Request, target: httpx.Request) -> httpx.Request:
    """Return `target`; if it goes to a different host than `request`, remove headers that may contain keys."""
    if (request.url.host, request.url.port) != (target.url.host, target.url.port):
        for name in [name for name in target.headers if name not in _KEPT_ACROSS_HOSTS]:
            del target.headers[name]
    return target


def is_near(host: str) -> bool:
    """Return whether a host is this machine or on its network; requests to such a host bypass the proxies."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host


@lru_cache(maxsize=1)
def certificates() -> SSLContext:
    """Return the TLS certificates set in the environment, or else certifi's; cached, because loading them is slow."""
    return httpx.create_ssl_context()


def _hide_query(record: logging.LogRecord) -> bool:
    """Remove the parts of a URL that may contain secrets from httpx's log message about a request."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None, fragment=None, userinfo=b"") if isinstance(arg, httpx.URL) else arg
            for arg in record.args
        )
    return True


logging.getLogger("httpx").addFilter(_hide_query)
