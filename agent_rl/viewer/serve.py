"""Serves the viewer from the terminal: reads the files with a progress bar, says the address, ends with Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from agent_rl.errors import ConfigError
from agent_rl.progress import progress
from agent_rl.viewer.records import Source

__all__ = ["serve"]


def serve(
    sources: Sequence[Source], host: str, port: int, token: str | None, announce: Callable[[str, int], None]
) -> None:
    """Serve until the process is told to end.

    Args:
        sources: the files.
        host: address to listen on.
        port: 0 for any.
        token: what browsers must show; None: nothing.
        announce: gets the address and the number of trajectories, once it can be opened.

    Raises:
        ConfigError: the packages for it are not installed, or the port is taken.
    """
    try:
        import uvicorn

        from agent_rl.viewer.app import LOOPBACK, create_app
    except ImportError as error:
        raise ConfigError("agent-rl view", f"{error.name} is not installed", "Install agent-rl[service]") from error
    from agent_rl.viewer.index import TraceIndex

    index = TraceIndex(sources)
    total = sum(source.path.stat().st_size for source in sources if source.path.exists())
    with progress("bytes of trajectories", total) as advance:
        index.refresh(advance)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        raise ConfigError("--port", f"{host}:{port} cannot be used ({error.strerror})", "Name another, or 0") from error
    port = listening.getsockname()[1]
    names = LOOPBACK if token is None else (*LOOPBACK, f"[{host}]" if ":" in host else host, socket.gethostname())
    shown = f"[{host}]" if ":" in host else host
    announce(f"http://{shown}:{port}/{f'?token={token}' if token else ''}", index.count())
    config = uvicorn.Config(create_app(index, hosts=names, token=token), log_level="warning")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        index.close()
