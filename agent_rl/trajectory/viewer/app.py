"""`create_app` builds the viewer's web app, which controls access to the pages and restricts what browsers may load.

`serve` runs the app from the terminal: it reads the files with a progress bar, and then serves pages until Ctrl-C.

A trajectory's text never runs as code on a page: templates escape it, the content security policy allows only the
viewer's own scripts and styles, and characters that control a terminal or text direction are shown by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from agent_rl.errors import ConfigError
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.pages import Pages
from agent_rl.trajectory.viewer.records import Source
from agent_rl.trajectory.viewer.rendering import visible
from agent_rl.work.progress import progress

logger = logging.getLogger(__name__)

REFRESH_S = 2.0
COOKIE = "agent_rl_viewer"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def create_app(index: TraceIndex, *, token: str | None = None) -> FastAPI:
    """Return the web app that serves the pages of an index, and refreshes the index.

    Args:
        index: the index of the trajectories.
        token: the token that a browser must send; None means no token, for a server that only this machine can reach.
            Without a token, requests with a `Host` header other than `LOOPBACK` are rejected.
    """
    pages = Pages(index)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_keep_fresh(index))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.mount("/static", StaticFiles(directory=Path(__file__).with_name("static")), name="static")
    app.get("/", response_class=HTMLResponse)(pages.runs)
    app.get("/trajectories", response_class=HTMLResponse)(pages.table)
    app.get("/t/{number:int}", response_class=HTMLResponse)(pages.trajectory)
    app.get("/t/{number:int}/group", response_class=HTMLResponse)(pages.group)
    app.get("/t/{number:int}/tokens", response_class=HTMLResponse)(pages.tokens)
    app.get("/t/{number:int}/image/{place:int}")(pages.image)
    app.get("/t/{number:int}/json")(pages.raw)
    app.get("/compare", response_class=HTMLResponse)(pages.compare)
    app.get("/count")(pages.count)

    @app.exception_handler(404)
    async def missing(request: Request, error: HTTPException) -> Response:
        return pages.missing(request, str(error.detail))

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = _refusal(request, token)
        response = await answer(request) if refusal is None else refusal
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    return app


def _refusal(request: Request, token: str | None) -> Response | None:
    """Return the refusal of a request with a wrong host (DNS rebinding), origin, method or token, otherwise None."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if token is None and name not in LOOPBACK:  # a token also prevents DNS rebinding: the other name has no cookie
        text = f"the host name {visible(name)!r} is not allowed: open the address that the command printed"
        return Response(text, status_code=403, media_type="text/plain")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return Response("requests from another origin are not allowed", status_code=403, media_type="text/plain")
    if request.method not in ("GET", "HEAD"):
        return Response("only GET and HEAD requests are allowed", status_code=405, media_type="text/plain")
    cookie = f"{COOKIE}_{request.url.port}"  # browsers send the cookies of a host to all its ports
    if token is None or hmac.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
        return None
    if hmac.compare_digest(request.query_params.get("token", "").encode(), token.encode()):
        more = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
        response = RedirectResponse(f"{request.url.path}?{more}", status_code=303)
        response.set_cookie(cookie, token, httponly=True, samesite="strict")
        return response
    return Response("open the address with ?token= that the command printed", status_code=401, media_type="text/plain")


def serve(
    sources: Sequence[Source], host: str, port: int, token: str | None, announce: Callable[[str, int], None]
) -> None:
    """Serve the viewer until the process receives a signal to exit.

    Args:
        sources: the files.
        host: the address to listen on.
        port: the port to listen on; 0 means any free port.
        token: the token that browsers must send; None means no token.
        announce: function that is called with the URL and the number of trajectories once the files are read.

    Raises:
        ConfigError: the port cannot be used.
    """
    shown, family = (f"[{host}]", socket.AF_INET6) if ":" in host else (host, socket.AF_INET)
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            "--port", f"{host}:{port} cannot be used ({error.strerror})", "Choose another port"
        ) from error
    with listening, contextlib.closing(TraceIndex(sources)) as index:
        total = sum(source.path.stat().st_size for source in sources if source.path.exists())
        with progress("bytes of trajectories", total) as advance:
            index.refresh(advance)
        place = f"http://{shown}:{listening.getsockname()[1]}/{f'?token={token}' if token else ''}"
        announce(place, index.count())
        config = uvicorn.Config(create_app(index, token=token), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


async def _keep_fresh(index: TraceIndex) -> None:
    while True:
        await asyncio.sleep(REFRESH_S)
        try:
            await asyncio.to_thread(index.refresh)
        except Exception:
            logger.exception("the index could not be refreshed from the files")
