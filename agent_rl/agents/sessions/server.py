"""Serves the sessions of a process over HTTP, with OpenAI's and Anthropic's routes; the API key selects a session."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agent_rl.agents.sessions.chat import chat_answer, chat_events, chat_request
from agent_rl.agents.sessions.messages import messages_answer, messages_error, messages_events, messages_request
from agent_rl.agents.sessions.request import RequestError, TurnReply, TurnRequest
from agent_rl.agents.sessions.responses import responses_answer, responses_events, responses_request
from agent_rl.agents.sessions.session import Session
from agent_rl.trajectory import plain_reward
from agent_rl.work.concurrency import PerLoop

KEEP_ALIVE_S = 10.0
"""Seconds between the comments that keep a stream alive while its turn is generated."""
KEEP_OPEN_S = 600
"""Seconds for which an idle connection stays open; a request fails if it is sent while the connection is closing."""


@dataclass(frozen=True)
class Api:
    """The functions that read the requests of one API and write its answers.

    Attributes:
        request: function that reads the body of a request.
        answer: function `(reply, body)` that returns the body of the answer to a request.
        events: function `(reply, body)` that yields the events of a stream.
        error: function that returns the body of an error answer.
    """

    request: Callable[[Mapping[str, Any]], TurnRequest]
    answer: Callable[[TurnReply, Mapping[str, Any]], dict[str, Any]]
    events: Callable[[TurnReply, Mapping[str, Any]], Iterator[str]]
    error: Callable[[RequestError], dict[str, Any]]


def _openai_error(error: RequestError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}


APIS = {
    "/v1/chat/completions": Api(chat_request, chat_answer, chat_events, _openai_error),
    "/v1/responses": Api(responses_request, responses_answer, responses_events, _openai_error),
    "/v1/messages": Api(messages_request, messages_answer, messages_events, messages_error),
}
"""The supported APIs, keyed by route."""


class _Server(uvicorn.Server):
    capture_signals = contextlib.nullcontext  # type: ignore[assignment]  # the server must not handle signals


class PortServer:
    """Serves an application on a port that the system chooses.

    Attributes:
        port: the port, which `start` sets.
    """

    port = 0

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._server: uvicorn.Server | None = None

    def start(self, host: str = "127.0.0.1") -> None:
        """Listen on this host, unless the server is already listening."""
        if self._server is None:
            listener = socket.create_server((host, 0), backlog=2048)
            weakref.finalize(self, listener.close)  # closes the socket if the event loop ends without a call to `stop`
            config = uvicorn.Config(
                self._app, log_level="warning", access_log=False, lifespan="off", ws="none",
                timeout_keep_alive=KEEP_OPEN_S,
            )  # fmt: skip
            self._server = server = _Server(config)

            def drop_connections(_: object) -> None:
                for connection in server.server_state.connections:
                    connection.transport.close()

            self._task = asyncio.ensure_future(server.serve([listener]))
            self._task.add_done_callback(drop_connections)  # drops connections if the event loop ends without `stop`
            self.port = int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.should_exit = True
            await self._task
            self._server = None


class Gateway(PortServer):
    """Serves the sessions of this process on one port.

    Attributes:
        sessions: the open sessions by key.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        routes = [self._route(path, partial(_turn, api), api.error) for path, api in APIS.items()]
        routes += [
            self._route("/v1/models", _models, _openai_error, "GET"),
            self._route("/v1/messages/count_tokens", _count_tokens, messages_error),
            self._route("/session/reward", _reward, _openai_error),
        ]
        super().__init__(Starlette(routes=routes))

    def _session(self, request: Request) -> Session:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        keys = bearer, request.headers.get("x-api-key", "")  # `verifiers` sends the key in one of these headers
        session = next((self.sessions[key] for key in keys if key in self.sessions), None)
        if session is None or session.is_closed:
            raise RequestError("the API key does not belong to an open episode", 401, "invalid_api_key")
        return session

    def _route(
        self, path: str, work: Callable[..., Awaitable[Response]], error: Callable[..., Any], method: str = "POST"
    ) -> Route:
        """Return a route to the sessions; an error that the client did not cause leaves the episode unscored."""

        async def handle(request: Request) -> Response:
            try:
                session = self._session(request)
                return await work(session, request, await _body(request) if method == "POST" else {})
            except RequestError as refusal:
                wrong = refusal
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as fault:  # noqa: BLE001 - the client did not cause this error (see `Session.fail`)
                wrong = session.fail(fault)
            return JSONResponse(error(wrong), wrong.status)

        return Route(path, handle, methods=[method])


async def _turn(api: Api, session: Session, request: Request, body: Mapping[str, Any]) -> Response:
    task = session.reply(_read(api, body), *_retry(request, body))
    if body.get("stream"):
        await asyncio.wait({task}, timeout=KEEP_ALIVE_S)
        if await request.is_disconnected():  # a turn that nobody receives must not be recorded as received
            raise ClientDisconnect
        if not task.done() or task.exception() is None:  # an error before streaming gets an HTTP error status
            return StreamingResponse(_stream(session, task, api, body), media_type="text/event-stream")
    reply = await asyncio.shield(task)
    answer = JSONResponse(api.answer(reply, body))
    if not await request.is_disconnected():
        reply.is_fetched = True
    return answer


async def _models(session: Session, request: Request, body: Mapping[str, Any]) -> Response:
    model = {"id": "policy", "object": "model", "created": 0, "owned_by": "agent_rl"}
    return JSONResponse({"object": "list", "data": [model]})


async def _count_tokens(session: Session, request: Request, body: Mapping[str, Any]) -> Response:
    return JSONResponse({"input_tokens": await session.count_tokens(_read(APIS["/v1/messages"], body))})


async def _reward(session: Session, request: Request, body: Mapping[str, Any]) -> Response:
    try:
        session.trajectory.verdict = plain_reward("reward", body.get("reward"))
    except ValueError as error:
        raise RequestError(str(error)) from error
    return JSONResponse({"reward": session.trajectory.verdict})


_gateways: PerLoop[Gateway] = PerLoop(Gateway)


def gateway(host: str = "127.0.0.1") -> Gateway:
    """Return the gateway of this process and event loop; the first call starts it on this host."""
    server = _gateways.get()
    server.start(host)
    return server


async def _stream(
    session: Session, task: asyncio.Task[TurnReply], api: Api, body: Mapping[str, Any]
) -> AsyncIterator[str]:
    """Yield comments until the turn is finished, and then yield the turn's events."""
    while not (await asyncio.wait({task}, timeout=KEEP_ALIVE_S))[0]:
        yield ": generating\n\n"
    try:
        reply = task.result()
        events = list(api.events(reply, body))
    except Exception as error:  # noqa: BLE001 - reported in an event, because the HTTP status was already sent
        wrong = error if isinstance(error, RequestError) else session.fail(error)
        yield f"event: error\ndata: {json.dumps(api.error(wrong))}\n\n"
        return
    for event in events[:-2]:
        yield event
    reply.is_fetched = True  # set before the last events, because a client may disconnect once it has them
    for event in events[-2:]:
        yield event


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def _read(api: Api, body: Mapping[str, Any]) -> TurnRequest:
    try:
        return api.request(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestError(f"the request contains a value of the wrong type ({error})") from error


def _retry(request: Request, body: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a request's key, and whether the request is a retry; SDKs send the number of retries so far."""
    if key := request.headers.get("idempotency-key"):
        return key, True
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return f"{request.url.path} {digest}", request.headers.get("x-stainless-retry-count", "0") != "0"
