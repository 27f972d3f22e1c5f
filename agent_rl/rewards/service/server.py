"""`serve`: listens for requests until the process is stopped, then finishes the open ones."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from types import FrameType
from typing import ClassVar

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.app import create_app
from agent_rl.rewards.service.gate import Gate
from agent_rl.rewards.service.settings import ServiceSettings

__all__ = ["serve"]

BACKLOG = 2048
KEEPALIVE_S = 30
"""Longer than our client keeps an idle connection, so that the server closes none during a request."""

HEADERS_S = 10.0
"""Seconds from the first byte of a request, or from a new connection, until its headers are there."""


def most_connections() -> int:
    """Two thirds of this process's descriptors; scorers, judges and connections that are closing need the others."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return BACKLOG if soft == resource.RLIM_INFINITY else soft * 2 // 3


class _Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of two classes, by what is installed
    """Closes a connection whose client does not finish its headers: uvicorn itself would keep it without end.

    Beyond `most_connections` each new one closes the one that has waited longest for a request's headers, so that
    clients that send none do not keep others out.
    """

    _late: asyncio.TimerHandle | None = None
    _waiting: ClassVar[dict[_Protocol, None]] = {}  # the longest first

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS_S, transport.close)
        self._waiting[self] = None
        if len(self.connections) > most_connections():
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # no further request has come already
            self._waiting[self] = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(HEADERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    """Closes the gate on the first signal to stop."""

    def __init__(self, config: uvicorn.Config, gate: Gate) -> None:
        super().__init__(config)
        self._gate = gate

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._gate.closing = True
        super().handle_exit(sig, frame)


def serve(settings: ServiceSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; then open requests get `shutdown_s` seconds to end.

    Args:
        settings: the configuration.
        ready: called with the address as soon as the socket listens.

    Raises:
        ConfigError: the configuration cannot be used, or the address is not available.
    """
    server = _server(settings)
    with contextlib.suppress(KeyboardInterrupt), _listen(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready(f"http://{host}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


def _server(settings: ServiceSettings) -> _Server:
    gate = create_app(settings)
    config = uvicorn.Config(
        gate,
        http=_Protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEPALIVE_S,
        backlog=min(BACKLOG, most_connections() // 4),
        timeout_graceful_shutdown=settings.shutdown_s,
    )
    return _Server(config, gate)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError("port", f"{host}:{port} cannot be listened on ({error})", "Choose another") from error
