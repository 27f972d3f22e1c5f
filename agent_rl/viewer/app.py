"""The viewer's pages, served on this machine: a table of trajectories, one of them, a group, two sides compared.

Nothing from a trajectory is ever code on a page: templates escape, the content security policy allows scripts and
styles of the viewer's own files alone, and characters that control a terminal or the order of text are shown by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import re
import statistics
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader

from agent_rl.viewer.index import FACETS, NUMBERS, PAGE, Query, TraceIndex
from agent_rl.viewer.records import visible

__all__ = ["LOOPBACK", "create_app"]

logger = logging.getLogger(__name__)

REFRESH_S = 2.0
COOKIE = "agent_rl_viewer"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def create_app(index: TraceIndex, *, hosts: Sequence[str] = LOOPBACK, token: str | None = None) -> FastAPI:
    """The pages over an index, which is refreshed while they are served.

    Args:
        index: of the trajectories.
        hosts: names under which the server may be called, without port; a request for another one is refused.
        token: what a browser must show; None: nothing, for a server on this machine alone.
    """
    pages = _Pages(index)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_keep_fresh(index))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.mount("/static", StaticFiles(directory=Path(__file__).with_name("static")), name="static")
    app.get("/", response_class=HTMLResponse)(pages.table)
    app.get("/t/{number:int}", response_class=HTMLResponse)(pages.trajectory)
    app.get("/t/{number:int}/group", response_class=HTMLResponse)(pages.group)
    app.get("/t/{number:int}/json")(pages.raw)
    app.get("/compare", response_class=HTMLResponse)(pages.compare)
    app.get("/count")(pages.count)

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        refused = _refusal(request, hosts, token)
        response = await answer(request) if refused is None else refused
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    return app


def _refusal(request: Request, hosts: Sequence[str], token: str | None) -> Response | None:
    """Why a request gets nothing: another host's name (DNS rebinding), another origin, or no token."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if name not in hosts:
        return Response(f"not served under the name {visible(name)!r}", status_code=403, media_type="text/plain")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return Response("another origin", status_code=403, media_type="text/plain")
    if request.method not in ("GET", "HEAD"):
        return Response("pages are read only", status_code=405, media_type="text/plain")
    if token is None or hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode()):
        return None
    if hmac.compare_digest(request.query_params.get("token", "").encode(), token.encode()):
        more = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
        response = RedirectResponse(f"{request.url.path}?{more}", status_code=303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response
    return Response("open the address with ?token= that the command printed", status_code=401, media_type="text/plain")


async def _keep_fresh(index: TraceIndex) -> None:
    while True:
        await asyncio.sleep(REFRESH_S)
        try:
            await asyncio.to_thread(index.refresh)
        except Exception:
            logger.exception("the files could not be read")


class _Pages:
    """A method for each page; each runs in a thread."""

    def __init__(self, index: TraceIndex) -> None:
        self.index = index
        self._lock = threading.Lock()
        self._values: tuple[int, dict[str, list[tuple[str, int]]]] = (-1, {})
        self._environment = Environment(
            loader=PackageLoader("agent_rl.viewer"), autoescape=True, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters["visible"] = visible
        self._environment.filters["number"] = _number
        self._environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=repr)

    def table(self, request: Request) -> HTMLResponse:
        """The trajectories that a query finds."""
        query, given = read_query(request.query_params), dict(request.query_params)
        count, rows = self.index.count(query), self.index.find(query)
        pages = max(1, -(-count // PAGE))
        return self._page(
            "table.html", query=query, given=given, count=count, rows=rows, pages=pages, values=self._choices(),
            numbers=NUMBERS, facets=FACETS, total=self.index.count(), skipped=self.index.skipped(), link=_linker(given),
        )  # fmt: skip

    def trajectory(self, request: Request, number: int) -> HTMLResponse:
        """One trajectory as a conversation."""
        columns, record = self._found(number)
        given = dict(request.query_params)
        before, after = self.index.neighbours(number, read_query(given))
        group = self.index.group(columns)
        back = {key: value for key, value in given.items() if key != "full"}
        return self._page(
            "trajectory.html", columns=columns, record=record, before=before, after=after, back=urlencode(back),
            full="full" in given, group=len(group), given=given, components=_components(record),
        )  # fmt: skip

    def group(self, number: int) -> HTMLResponse:
        """The samples of one prompt, side by side."""
        columns, _ = self._found(number)
        rows = self.index.group(columns)
        samples = [(row, self._found(row["id"])[1], advantage) for row, advantage in _advantages(rows)]
        names = list(dict.fromkeys(name for _, record, _ in samples for name, _ in _components(record)))
        return self._page("group.html", columns=columns, samples=samples, names=names, full=False)

    def compare(self, request: Request) -> HTMLResponse:
        """Two files, or two steps, on the prompts that they share."""
        given = dict(request.query_params)
        files = [name for name, _ in self._choices()["file"]]
        sides = [
            (given.get(f"{side}_file", files[0] if files else ""), _int(given.get(f"{side}_step"))) for side in "ab"
        ]
        rows = self.index.compare(*sides) if given else []
        return self._page(
            "compare.html", files=files, steps=self._choices()["step"], sides=sides, rows=rows, given=given
        )

    def raw(self, number: int) -> JSONResponse:
        """One trajectory as JSON."""
        return JSONResponse(self._found(number)[1])

    def count(self, request: Request) -> JSONResponse:
        """How many trajectories a query finds now."""
        return JSONResponse({"count": self.index.count(read_query(request.query_params))})

    def _found(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        found = self.index.get(number)
        if found is None:
            raise HTTPException(404, f"there is no trajectory {number}")
        return found

    def _choices(self) -> dict[str, list[tuple[str, int]]]:
        """The values of all facets; counted anew only when trajectories have come."""
        with self._lock:
            total = self.index.count()
            if self._values[0] != total:
                self._values = total, {name: self.index.values(name) for name in (*FACETS, "tool", "component")}
            return self._values[1]

    def _page(self, name: str, **values: Any) -> HTMLResponse:
        html = self._environment.get_template(name).render(**values)
        return HTMLResponse(html.encode(errors="replace"))


def read_query(given: Mapping[str, str]) -> Query:
    """The query of a page's address; what cannot be read does not count."""
    ranges = {name: (_float(given.get(f"{name}_min")), _float(given.get(f"{name}_max"))) for name in NUMBERS}
    errors = {"yes": True, "no": False}
    return Query(
        facets={name: given[name] for name in FACETS if given.get(name)},
        ranges={name: bounds for name, bounds in ranges.items() if bounds != (None, None)},
        tool=given.get("tool", ""),
        component=given.get("component", ""),
        component_range=(_float(given.get("component_min")), _float(given.get("component_max"))),
        with_error=errors.get(given.get("error", "")),
        text=given.get("text", "")[:200],
        sort=given.get("sort", "id"),
        descending=given.get("order", "desc") != "asc",
        page=max(0, min(_int(given.get("page")) or 0, 10**6)),
    )


def _linker(given: Mapping[str, str]) -> Callable[..., str]:
    """Makes addresses of this page with some values changed."""

    def link(**changed: Any) -> str:
        values = {**given, **{key: str(value) for key, value in changed.items()}}
        return "?" + urlencode({key: value for key, value in values.items() if value})

    return link


def _advantages(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float | None]]:
    """Each sample with its reward's distance from the group's mean in standard deviations, as GRPO has it."""
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    if len(rewards) < 2:
        return [(row, None) for row in rows]
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(row, None if row["reward"] is None else (row["reward"] - mean) / (deviation + 1e-6)) for row in rows]


def _components(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(((record.get("score") or {}).get("components") or {}).items())


def _number(value: Any) -> str:
    if value is None:
        return "\u2013"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _float(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if found == found else None


def _int(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
