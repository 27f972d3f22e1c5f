"""MCP sessions over stdio or streamable HTTP, including sessions that the trajectories of a worker process share.

The SDK's context managers must be entered and exited in the same task, but a tool's calls come from many tasks. A
separate task therefore keeps each session open; any task of the loop can make calls, and canceling a call cancels only
its request.

A session opens with the `initialize` handshake, so that the server can keep state for the session; the stateless
protocol of 2026 is used only if the server accepts nothing else. The client declines sampling, elicitation and roots,
and ignores notifications.

A server may outlive the worker if it leaves its process group, or if the worker is killed with SIGKILL and the server
does not exit when its input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from agent_rl.errors import ToolError, UnscoredError
from agent_rl.remote.http import certificates, is_near
from agent_rl.tools.builtin._mcp.server import MAX_MESSAGE_BYTES, TOO_LARGE, McpServer
from agent_rl.work.concurrency import PerLoop

CLOSE_TIMEOUT_S = 5.0
"""Time limit for closing a session of an HTTP server, in seconds."""
_CAUSE_S = 1.0  # seconds for which a failed call waits to learn why the connection broke
_MAX_PAGES = 1000
_STDERR_BYTES = 2000  # maximum number of bytes of stderr that an error quotes
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_HTTP_ERRORS: ContextVar[list[int]] = ContextVar("agent_rl_mcp_http_errors")
"""HTTP error statuses of the request in this context, which the SDK does not report."""
_HELD: set[asyncio.Task[None]] = set()  # keeps tasks alive, because the event loop has only weak references to them


class McpConnection:
    """One MCP session, which one task may enter and another may exit.

    Args:
        server: the server's settings in the entry's config.
    """

    _session: asyncio.Future[ClientSession]
    _task: asyncio.Task[None]

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._stderr = b""
        self._end = asyncio.Event()
        self._problem = ""

    @property
    def lost(self) -> bool:
        """Whether the session has ended, for any reason."""
        return self._end.is_set()

    async def __aenter__(self) -> McpConnection:
        """Connect.

        Raises:
            UnscoredError: the server did not answer in time.
            ConfigError: an environment variable in the config is not set.
        """
        opened = self._session = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(self._server.environment(), self._server.headers()))
        _HELD.add(self._task)
        self._task.add_done_callback(_HELD.discard)
        try:
            limit_s = self._server.connect_timeout_s
            await asyncio.wait((opened, self._task), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not opened.done():
                self._task.cancel()
        if opened.done():
            return self
        if not self._task.done():
            self._problem = f"no answer within {limit_s:g} s"
        await asyncio.wait((self._task,))
        raise self._unscored("the connection could not be opened")

    async def __aexit__(self, *_: object) -> None:
        self._end.set()
        await asyncio.wait((self._task,))

    def live(self) -> ClientSession:
        """Return the SDK's session.

        Raises:
            UnscoredError: the session has ended.
        """
        if self.lost:
            raise self._unscored("the connection was lost")
        return self._session.result()

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call one tool; a cancellation is forwarded to the server.

        Raises:
            ToolError: the server rejected the call.
            UnscoredError: the server could not be reached, or its answer is not MCP.
        """
        statuses: list[int] = []
        token = _HTTP_ERRORS.set(statuses)
        try:
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
            result: CallToolResult | InputRequiredResult = await self.live().send_request(request, _RESULT)
        except MCPError as error:
            raise await self._failure(error, statuses) from error
        except ValidationError as error:
            raise self._unscored("the server returned a result that is not valid MCP") from error
        finally:
            _HTTP_ERRORS.reset(token)
        if isinstance(result, InputRequiredResult):
            raise ToolError(f"{name} requests input from its client, which is not available here")
        return result

    async def _hold(self, env: dict[str, str], headers: dict[str, str]) -> None:
        statuses: list[int] = []
        _HTTP_ERRORS.set(statuses)
        try:
            async with self._transport(env, headers) as streams, ClientSession(*streams) as session:
                await _handshake(session)
                self._session.set_result(session)
                await self._end.wait()
        except Exception as error:  # noqa: BLE001 - any failure of the SDK is reported to the callers
            self._problem = self._problem or _explain(error, statuses)
        finally:
            self._end.set()

    @contextlib.asynccontextmanager
    async def _transport(self, env: dict[str, str], headers: dict[str, str]) -> AsyncIterator[Any]:
        server = self._server
        if server.url is None:
            program, *arguments = server.command
            parameters = StdioServerParameters(
                command=program, args=arguments, env=env, cwd=server.cwd, encoding_error_handler="replace"
            )
            with tempfile.TemporaryFile("w") as stderr:
                try:
                    async with stdio_client(parameters, stderr) as streams:
                        yield streams
                finally:
                    file = stderr.fileno()
                    self._stderr = os.pread(file, _STDERR_BYTES, max(0, os.fstat(file).st_size - _STDERR_BYTES))
            return
        client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(server.connect_timeout_s, read=None),  # the caller limits the reading time
            limits=httpx2.Limits(max_connections=None),
            event_hooks={"request": [_bound_close], "response": [_note_error]},
            trust_env=not is_near(urlsplit(server.url).hostname or ""),
            verify=certificates(),
        )
        async with client:
            async with streamable_http_client(
                server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams:
                yield streams

    async def _failure(self, error: MCPError, statuses: list[int]) -> ToolError | UnscoredError:
        if error.code == INVALID_PARAMS:
            return ToolError(self._server.redact(error.message))
        if any(status in (400, 404) for status in statuses):  # the server no longer knows the session
            self._end.set()
        if statuses:
            return self._unscored(f"HTTP status {statuses[-1]}")
        if error.code != CONNECTION_CLOSED:
            return ToolError(self._server.redact(error.message))
        if "byte limit" in error.message:  # httpx2's wording
            return ToolError(TOO_LARGE)
        self._end.set()
        await asyncio.wait((self._task,), timeout=_CAUSE_S)
        return self._unscored(f"the call was not answered: {error.message}")

    def _unscored(self, problem: str) -> UnscoredError:
        parts = [problem, *([self._problem] if self._problem else [])]
        if self.lost and (words := self._stderr.decode("utf-8", "replace").strip()):
            parts.append(f"its stderr ends with:\n{words}")
        return UnscoredError(self._server.redact(f"MCP server {self._server.label}: {'; '.join(parts)}"))


def list_tools(server: McpServer) -> list[Tool]:
    """List a server's tools. The call blocks until the server has answered, even inside an event loop.

    Raises:
        UnscoredError: the server does not answer.
    """

    async def ask() -> list[Tool]:
        async with McpConnection(server) as connection:
            return await asyncio.wait_for(_pages(connection.live()), server.connect_timeout_s)

    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, ask()).result()
    except (MCPError, ValidationError, asyncio.TimeoutError) as error:
        problem = server.redact(f"MCP server {server.label}: its tools cannot be listed: {error!r}")
        raise UnscoredError(problem) from error


_shared: PerLoop[dict[str, asyncio.Task[McpConnection]]] = PerLoop(dict)


async def shared(server: McpServer) -> McpConnection:
    """Return the session that all trajectories of this event loop share, or a new session if the last one was lost.

    Raises:
        UnscoredError: the server did not answer; every caller that waits for this attempt gets the error.
    """
    opening = _shared.get()
    task = opening.get(server.key)
    if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().lost)):
        task = opening[server.key] = asyncio.create_task(McpConnection(server).__aenter__())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # keeps asyncio from logging errors
    return await asyncio.shield(task)


async def _handshake(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()
        await _pages(session)  # the SDK derives request headers from the list of tools


async def _pages(session: ClientSession) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


async def _note_error(response: httpx2.Response) -> None:
    statuses = _HTTP_ERRORS.get(None)
    if statuses is not None and response.status_code >= 400 and response.request.method == "POST":
        statuses.append(response.status_code)


async def _bound_close(request: httpx2.Request) -> None:
    if request.method == "DELETE":
        request.extensions["timeout"] = httpx2.Timeout(CLOSE_TIMEOUT_S).as_dict()


def _explain(error: BaseException, statuses: list[int]) -> str:
    while inner := getattr(error, "exceptions", None):  # find the cause inside the errors of task groups
        error = inner[0]
    if statuses:
        return f"HTTP status {statuses[-1]}"
    return str(error) if isinstance(error, MCPError | OSError) else f"{type(error).__name__}: {error}"
