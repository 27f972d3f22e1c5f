"""`serve`: listens for requests until the process is stopped, then finishes the open ones."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.app import create_app
from agent_rl.rewards.service.gate import Gate
from agent_rl.rewards.service.settings import ServiceSettings

__all__ = ["serve"]

BACKLOG = 2048
KEEPALIVE_S = 30
"""Longer than our client keeps an idle connection, so that the server closes none during a request."""


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
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEPALIVE_S,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.shutdown_s,
    )
    return _Server(config, gate)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError("port", f"{host}:{port} cannot be listened on ({error})", "Choose another") from error
