"""A real MCP server for the tests, built with the SDK's server side.

python mcp_server.py                 stdio
python mcp_server.py http PORT       streamable HTTP; the port is printed, 0 is a free one
python mcp_server.py stubborn        stdio; neither a closed input nor SIGTERM ends it or its child
python mcp_server.py broken          complains and exits
python mcp_server.py mute            never answers
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import mcp_types as types
from mcp.shared.exceptions import MCPError


def rich_server():
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("rich", log_level="CRITICAL")
    totals: Counter = Counter()
    stopped = []

    @server.tool()
    async def add(by: int, ctx: Context) -> str:
        """Add to this session's total."""
        session = (ctx.headers or {}).get("mcp-session-id")  # over stdio there is one
        totals[session] += by
        return str(totals[session])

    @server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
    async def read_env(name: str) -> str:
        """An environment variable of the server."""
        return os.environ.get(name, "unset")

    @server.tool(name="read.pid", annotations=types.ToolAnnotations(idempotent_hint=True))
    async def read_pid() -> str:
        return str(os.getpid())

    @server.tool()
    async def fail(why: str) -> str:
        """Fail."""
        raise ToolError(f"cannot: {why}")

    @server.tool()
    async def refuse() -> str:
        """Fail at the level of the protocol."""
        raise MCPError(code=types.INTERNAL_ERROR, message="out of order")

    @server.tool()
    async def hang() -> str:
        """Hang until cancelled."""
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            stopped.append(1)
            raise
        return "never"

    @server.tool()
    async def count_stopped() -> str:
        """How many hanging calls were cancelled."""
        return str(len(stopped))

    @server.tool()
    async def crash() -> str:
        """End the server."""
        print("the disk is on fire", os.environ.get("MCP_TEST_KEY", ""), file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
    async def crash_once(flag: str) -> str:
        """End the server, the first time."""
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return "back again"
        os._exit(3)

    @server.tool()
    async def show(kind: str) -> types.CallToolResult:
        """A result of many parts."""
        image = types.ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
        text = types.TextContent(type="text", text="a text")
        link = types.ResourceLink(type="resource_link", name="doc", uri="file:///doc.txt")
        note = types.TextResourceContents(uri="file:///note.txt", text="a note")
        blob = types.BlobResourceContents(uri="file:///b", blob="aGVsbG8h", mime_type="application/zip")
        embedded = [types.EmbeddedResource(type="resource", resource=item) for item in (note, blob)]
        if kind == "structured":
            return types.CallToolResult(content=[], structured_content={"sum": 3, "unit": "€"})
        return types.CallToolResult(content=[text, image, link, *embedded])

    @server.tool()
    async def repeat(times: int) -> str:
        """A long text."""
        return "x" * times

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the client for its roots, and tell it that the tools have changed."""
        await ctx.session.send_tool_list_changed()
        try:
            return str(await ctx.session.list_roots())
        except Exception as error:
            return f"declined: {error}"

    return server


async def refuse_handshake(ctx, call_next):
    if ctx.method == "initialize":
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "too old", {"supported": ["2026-07-28"], "requested": "old"})
    return await call_next(ctx)


def serve_http(port, *, stateless):
    import uvicorn

    server = rich_server()
    if stateless:
        server.middleware.append(refuse_handshake)
    app = server.streamable_http_app()
    token = os.environ.get("MCP_TEST_TOKEN")

    async def guarded(scope, receive, send):
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and token and given != token:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
        else:
            await app(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(guarded, log_level="critical")).run(sockets=[listener])


def main(mode):
    if mode == "broken":
        print("no licence", file=sys.stderr)
        sys.exit(7)
    if mode == "mute":
        sys.stdin.read()
    elif mode in ("http", "stateless"):
        serve_http(int(sys.argv[2]), stateless=mode == "stateless")
    else:
        if mode == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "600"])
            print("child", child.pid, file=sys.stderr, flush=True)
        rich_server().run()
        while mode == "stubborn":
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "stdio")
