"""`serve` accepts requests until the process receives a stop signal, and then finishes the open requests."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from typing import ClassVar

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.app import create_app
from agent_rl.rewards.service.settings import ServiceSettings

BACKLOG = 2048
KEEPALIVE_S = 30
"""Seconds for which an idle connection stays open: longer than in agent_rl's client, so that no request is sent over a
closed connection."""

HEADERS_S = 10.0
"""Time limit for a request's headers in seconds, from its first byte or from the start of the connection."""


def most_connections() -> int:
    """Return two thirds of the limit on open files; scorers, judges and closing connections need the rest."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return BACKLOG if soft == resource.RLIM_INFINITY else soft * 2 // 3


class _Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # depends on the installed packages
    """Closes a connection if its client does not finish sending headers; uvicorn alone would keep it open forever.

    When more than `most_connections` are open, each new connection closes the connection that has waited longest for
    headers, so that clients that send no headers cannot lock out the others.
    """

    _timer: asyncio.TimerHandle | None = None
    _waiting: ClassVar[dict[_Protocol, None]] = {}  # the longest-waiting connections come first

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEADERS_S, transport.close)
        self._waiting[self] = None
        if len(self.connections) > most_connections():
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # no pipelined request follows
            self._waiting[self] = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def serve(settings: ServiceSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, and then wait up to `shutdown_s` seconds for open requests to finish.

    Args:
        settings: the configuration.
        ready: a function that is called with the service's address as soon as the socket listens.

    Raises:
        ConfigError: the configuration cannot be used, or the service cannot listen on the address.
    """
    server = _server(settings)
    with contextlib.suppress(KeyboardInterrupt), _listen(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready(f"http://{host}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


def _server(settings: ServiceSettings) -> uvicorn.Server:
    config = uvicorn.Config(
        create_app(settings),
        http=_Protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEPALIVE_S,
        backlog=min(BACKLOG, most_connections() // 4),
        timeout_graceful_shutdown=settings.shutdown_s,
    )
    return uvicorn.Server(config)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            "port", f"the service cannot listen on {host}:{port} ({error})", "Choose another port"
        ) from error
