"""The routes: `POST /get_reward`, `POST /get_reward2`, `/health`, `/metrics`, and the documentation at `/docs`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

import agent_rl
from agent_rl.rewards.service import wire
from agent_rl.rewards.service.endpoint import RewardEndpoint
from agent_rl.rewards.service.gate import ENDPOINTS, Gate, Metrics
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.settings import RewardSettings

__all__ = ["create_app"]

Answering = Callable[..., Awaitable[Response]]

_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "The token is missing or wrong"},
    413: {"description": "The request is too large"},
    422: {"description": "The request cannot be read; `field` says where"},
    503: {"description": "Too many requests, or the service is being stopped; Retry-After says when to come back"},
}


def create_app(settings: ServiceSettings) -> Gate:
    """The service as an ASGI application.

    Raises:
        ConfigError: a setting cannot be used.
    """
    token, metrics, scorers = settings.token(), Metrics(), _scorers(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for scorer in scorers.values():
            await scorer.close()

    app = FastAPI(
        title="agent_rl rewards", version=agent_rl.__version__, description=wire.__doc__ or "", lifespan=lifespan
    )
    for path, scorer in scorers.items():
        post = app.post(path, response_model=wire.Answer | wire.Answers, responses=_RESPONSES, name=path[1:])
        post(_answering(path, scorer, metrics))
    for path in set(ENDPOINTS) - scorers.keys():
        app.post(path, include_in_schema=False)(_missing)
    app.exception_handler(RequestValidationError)(_unreadable)
    app.exception_handler(HTTPException)(_failed)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the service accepts requests, and its endpoints."""
        return {"status": "ok", "endpoints": sorted(scorers)}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counts() -> str:
        """Counts and latencies, for Prometheus."""
        return metrics.text()

    limits = {"max_requests": settings.max_requests, "max_bytes": settings.max_bytes}
    return Gate(app, metrics, token=token, **limits)


def _scorers(settings: ServiceSettings) -> dict[str, RewardEndpoint]:
    limits: dict[str, Any] = {
        "max_response_tokens": settings.max_response_tokens,
        "max_concurrent": settings.max_concurrent,
        "timeout_s": settings.timeout_s,
    }
    rules, scorers = settings.rules, {}
    if rules is not None or settings.rules_file is not None:
        scorers[ENDPOINTS[0]] = RewardEndpoint(
            "rules", rules or RewardSettings(), rules_file=settings.rules_file, **limits
        )
    if settings.judge is not None:
        scorers[ENDPOINTS[1]] = RewardEndpoint("judge", settings.judge, **limits)
    return scorers


def _answering(path: str, scorer: RewardEndpoint, metrics: Metrics) -> Answering:
    async def answer(body: Annotated[wire.Body, Body()]) -> Response:
        """Score one item, or a batch."""
        answers = await scorer.answer(body.items if isinstance(body, wire.Batch) else [body])
        metrics.answered(path, answers)
        found = wire.Answers(items=answers) if isinstance(body, wire.Batch) else answers[0]
        return Response(found.model_dump_json(), media_type="application/json")  # not checked against the models again

    return answer


async def _missing(request: Request) -> None:
    section = "judge" if request.url.path == ENDPOINTS[1] else "rules"
    raise HTTPException(404, f"the service's configuration has no section {section!r}")


async def _failed(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _unreadable(_: Request, error: Any) -> JSONResponse:
    """The first problem, in terms of the request's fields."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "body" and part not in wire.FORMS)
    return JSONResponse({"error": f"{field or 'the body'}: {first['msg']}", "field": field}, 422)
