"""Serves the viewer from the terminal: reads the files with a progress bar, says the address, ends with Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import closing

from agent_rl.errors import ConfigError
from agent_rl.trajectory.viewer.records import Source
from agent_rl.work.progress import progress

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

        from agent_rl.trajectory.viewer.app import LOOPBACK, create_app
    except ImportError as error:
        raise ConfigError("agent-rl view", f"{error.name} is not installed", "Install agent-rl[service]") from error
    from agent_rl.trajectory.viewer.index import TraceIndex

    shown, family = (f"[{host}]", socket.AF_INET6) if ":" in host else (host, socket.AF_INET)
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError("--port", f"{host}:{port} cannot be used ({error.strerror})", "Name another, or 0") from error
    names = LOOPBACK if token is None else (*LOOPBACK, shown, socket.gethostname())
    with listening, closing(TraceIndex(sources)) as index:
        total = sum(source.path.stat().st_size for source in sources if source.path.exists())
        with progress("bytes of trajectories", total) as advance:
            index.refresh(advance)
        place = f"http://{shown}:{listening.getsockname()[1]}/{f'?token={token}' if token else ''}"
        announce(place, index.count())
        config = uvicorn.Config(create_app(index, hosts=names, token=token), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
