"""`serve` runs the viewer from the terminal: it reads the files with a progress bar, then serves until Ctrl-C."""

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
    """Serve the viewer until the process receives a signal to end.

    Args:
        sources: the files.
        host: the address to listen on.
        port: the port to listen on; 0: any free port.
        token: the token that browsers must send; None: no token.
        announce: is called with the URL and the number of trajectories once the files are read.

    Raises:
        ConfigError: a package that the viewer needs is not installed, or the port cannot be used.
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
        raise ConfigError(
            "--port", f"{host}:{port} cannot be used ({error.strerror})", "Choose another port"
        ) from error
    names = LOOPBACK if token is None else (*LOOPBACK, shown, socket.gethostname())
    with listening, closing(TraceIndex(sources)) as index:
        total = sum(source.path.stat().st_size for source in sources if source.path.exists())
        with progress("bytes of trajectories", total) as advance:
            index.refresh(advance)
        place = f"http://{shown}:{listening.getsockname()[1]}/{f'?token={token}' if token else ''}"
        announce(place, index.count())
        config = uvicorn.Config(create_app(index, hosts=names, token=token), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
