"""An MCP server as a child process: its start, its messages, its end, and the end of its stderr for error messages.

The SDK's own stdio client is not used because one large result stops its event loop (a line of 20 MB takes 9 s), and
because it keeps the process to itself, so that nothing could be killed when its shutdown is interrupted.

Not promised: a server that leaves its process group, or outlives its closed input after the worker was killed with
SIGKILL, goes on running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

__all__ = ["MAX_MESSAGE_BYTES", "Process"]

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""A longer message is not parsed; the call that it answers fails with a text that says so."""
EXIT_GRACE_S = 2.0
"""Seconds that a server has to exit after its input was closed, and again after SIGTERM."""
_CHUNK = 256 * 1024
_LAST_WORDS = 2000  # bytes of stderr that an error may repeat
_EDGE = 200  # bytes at either end of an overlong message in which its id is looked for
_ID = re.compile(rb'\A\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)|"id"\s*:\s*(\d+)\s*\}\s*\Z')

Incoming = MemoryObjectSendStream[SessionMessage | Exception]

logger = logging.getLogger(__name__)


class Process:
    """One server process.

    Args:
        command: program and arguments.
        env: its whole environment.
        cwd: its working directory; None: ours.
        on_end: called when the server has closed its output.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, on_end: Callable[[], None]
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = b""
        self._heard = asyncio.Event()

    @contextlib.asynccontextmanager
    async def streams(
        self,
    ) -> AsyncIterator[
        tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
    ]:
        """The streams of an MCP session; the process lives as long as they do.

        Raises:
            OSError: the process cannot be started.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,  # a process group of its own, which can be killed as a whole
            limit=_CHUNK,
        )
        self._process = process
        try:
            to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
            async with to_session, from_server, to_server, from_session, anyio.create_task_group() as group:
                group.start_soon(self._read, process, to_session)
                group.start_soon(self._write, process, from_session)
                group.start_soon(self._listen, process)
                try:
                    yield from_server, to_server
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._stop(process)
                    group.cancel_scope.cancel()
        finally:
            _signal(process, signal.SIGKILL)  # also when the shutdown above was interrupted
            process._transport.close()  # type: ignore[attr-defined]  # a survivor may hold its pipes open

    def last_words(self) -> str:
        """How the process ended, and the end of what it wrote to stderr."""
        if self._process is None:
            return "it was not started"
        code = self._process.returncode
        ended = "it is still running" if code is None else f"it ended with status {code}"
        words = self._stderr.decode("utf-8", "replace").strip()
        return f"{ended}, and its stderr ends with:\n{words}" if words else f"{ended} and wrote nothing to stderr"

    async def _read(self, process: asyncio.subprocess.Process, session: Incoming) -> None:
        assert process.stdout is not None
        async with session:
            async for line in _lines(process.stdout):
                message = _message(line)
                if message is not None:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await session.send(message)  # once the session is gone, the output is read and dropped
            self._on_end()

    async def _write(
        self, process: asyncio.subprocess.Process, session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None
        async with session:
            async for item in session:
                process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                try:
                    await process.stdin.drain()
                except ConnectionError:
                    return self._on_end()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        try:
            while chunk := await process.stderr.read(_CHUNK):
                self._stderr = (self._stderr + chunk)[-_LAST_WORDS:]
        finally:
            self._heard.set()

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """Input closed, SIGTERM, SIGKILL; each wait is bounded."""
        assert process.stdin is not None
        process.stdin.close()
        if not await _ended(process):
            _signal(process, signal.SIGTERM)
            await _ended(process)
        _signal(process, signal.SIGKILL)  # what is left of its group, such as a child of its own
        if not await _ended(process):
            logger.warning("the MCP server with process id %d does not die", process.pid)
        with anyio.move_on_after(EXIT_GRACE_S):
            await self._heard.wait()


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Whether the process ends in time. Polled, because `Process.wait` also waits for pipes that a child may hold."""
    with anyio.move_on_after(EXIT_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The stream's lines; of an overlong one only the two ends, with a NUL between them."""
    parts: list[bytes] = []
    size = 0
    while chunk := await stream.read(_CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE_BYTES:
            line = b"".join(parts)
            parts = [line[:_EDGE], b"\0", line[-_EDGE:]]


def _message(line: bytes) -> SessionMessage | None:
    if b"\0" in line:
        found = _ID.search(line)
        if found is None:
            logger.warning("dropped a message of an MCP server above %d bytes", MAX_MESSAGE_BYTES)
            return None
        problem = f"the result is larger than {MAX_MESSAGE_BYTES >> 20} MiB"
        error = ErrorData(code=INTERNAL_ERROR, message=problem)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1] or found[2]), error=error))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        if line.strip():
            logger.warning("dropped a line of an MCP server's stdout that is not a JSON-RPC message")
        return None
