"""The service's routes: `POST /get_reward`, `POST /get_reward2`, `/health`, `/metrics`, and `/docs` for humans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

import agent_rl
from agent_rl.rewards.service import wire
from agent_rl.rewards.service.endpoint import RewardEndpoint
from agent_rl.rewards.service.gate import ENDPOINTS, Gate, GatedRoute, Metrics
from agent_rl.rewards.service.settings import ServiceSettings

Handler = Callable[..., Awaitable[Response]]

_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "The token is missing or wrong"},
    413: {"description": "The request is too large"},
    422: {"description": "The request is invalid; `field` names the field"},
    503: {"description": "Too many requests are open; Retry-After states the seconds to wait"},
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """Create the service.

    Raises:
        ConfigError: a setting cannot be used.
    """
    gate = Gate(token=settings.token(), max_requests=settings.max_requests, max_bytes=settings.max_bytes)
    scorers = {
        path: RewardEndpoint(section, settings)
        for path, section in ENDPOINTS.items()
        if settings.reward(section) is not None
    }

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for scorer in scorers.values():
            await scorer.close()

    app = FastAPI(
        title="agent_rl rewards", version=agent_rl.__version__, description=wire.__doc__ or "", lifespan=lifespan
    )
    app.state.gate, router = gate, APIRouter(route_class=GatedRoute)
    for path, scorer in scorers.items():
        post = router.post(path, response_model=wire.Answer | wire.Answers, responses=_RESPONSES, name=path[1:])
        post(_handler(path, scorer, gate.metrics))
    for path in ENDPOINTS.keys() - scorers.keys():
        router.post(path, include_in_schema=False)(_no_section)
    app.include_router(router)
    app.exception_handler(RequestValidationError)(_invalid_request)
    app.exception_handler(HTTPException)(_http_error)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Report that the service accepts requests, and list its endpoints."""
        return {"status": "ok", "endpoints": sorted(scorers)}

    @app.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(gate.check_token)])
    async def counts() -> str:
        """Return counts and latencies for Prometheus."""
        return gate.metrics.text()

    return app


def _handler(path: str, scorer: RewardEndpoint, metrics: Metrics) -> Handler:
    async def answer(body: Annotated[wire.Body, Body()]) -> Response:
        """Score one item or a batch of items."""
        answers = await scorer.answer(body.items if isinstance(body, wire.Batch) else [body])
        metrics.answered(path, answers)
        content = wire.Answers(items=answers) if isinstance(body, wire.Batch) else answers[0]
        return Response(content.model_dump_json(), media_type="application/json")  # avoids a second validation

    return answer


async def _no_section(request: Request) -> None:
    raise HTTPException(404, f"the service's configuration has no {ENDPOINTS[request.url.path]!r} section")


async def _http_error(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _invalid_request(_: Request, error: Any) -> JSONResponse:
    """Report the first problem, and the request's field in which it occurs."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "body" and part not in wire.FORMS)
    return JSONResponse({"error": f"{field or 'the body'}: {first['msg']}", "field": field}, 422)
