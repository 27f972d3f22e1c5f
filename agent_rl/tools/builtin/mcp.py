"""`mcp`: the tools of a Model Context Protocol server, declared once.

    tools:
      - name: mcp
        config:
          command: [python, my_server.py]         # a child process (stdio); or  url: http://host:port/mcp
          env: {MODE: train}                      # variables for the child, in addition to PATH, HOME, SHELL, TERM, ...
          env_from: [SEARCH_KEY]                  # copied from the worker's environment; use it for secrets
          headers_from: {Authorization: MY_TOKEN} # with url: header -> environment variable with its value
          include: [search, "read_*"]             # names on the server; default: all
          exclude: [delete_*]
          prefix: fs_                             # prefix of each name, to avoid collisions
          session: trajectory                     # or shared: one session for all trajectories of a worker process
          connect_timeout_s: 10                   # should be below timeout_s
        timeout_s: 20                             # for one call; a session's first call also connects

The server lists its tools once, when the file is loaded. Entries with the same server settings share sessions.
Characters that are not allowed in a tool's name become `_`, and the description then contains the original name. Only
tools that the server annotates as read-only or idempotent are retried after an infrastructure failure. The annotations
do not promise that results never change. If you know that results never change, write `reusable: true` next to
`config`, so that equal calls get the earlier result.

With `command` and `session: trajectory`, each trajectory has its own process (about 70 MiB and 0.7 s of CPU time for a
Python server); if that process exits, the trajectory is unscored. If a shared session is lost during a call, the
calling trajectory is also unscored, unless the call may be repeated. The next call opens a new session.

The policy gets a result's text, its structured content as JSON if there is no text, and a placeholder such as
`[image/png, 1234 bytes]` for everything else. Values from `env_from` and `headers_from` (8 characters or more) that
appear in a result or an error are replaced by `***`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agent_rl.errors import ConfigError, ToolError, UnscoredError, did_you_mean
from agent_rl.settings.errors import validated
from agent_rl.tools.base import Tool
from agent_rl.tools.builtin._mcp.server import MAX_MESSAGE_BYTES, TOO_LARGE, McpServer
from agent_rl.tools.spec import Toolset, ToolSpec
from agent_rl.tools.truncation import truncate

if TYPE_CHECKING:  # the SDK takes 0.7 s to import
    from mcp_types import CallToolResult
    from mcp_types import Tool as RemoteTool

    from agent_rl.tools.builtin._mcp.connection import McpConnection

MAX_RESULT_CHARS = 100_000
"""Maximum number of characters in a result; the middle of a longer result is cut."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class McpConfig(McpServer):
    """The config of an `mcp` entry."""

    include: list[str] | None = None
    exclude: list[str] = Field(default=[])
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_-]*$")


class McpToolConfig(McpServer):
    """The config of a single tool, as `agent-rl tools expand` writes it."""

    tool: str
    """The tool's name on the server."""


class Mcp(Toolset):
    """The tools of one server."""

    name = "mcp"

    @classmethod
    def tools(cls, config: Mapping[str, Any]) -> list[ToolSpec]:
        """Return the tools that the server lists.

        Raises:
            ConfigError: the server cannot be reached, or a pattern matches nothing.
        """
        from agent_rl.tools.builtin._mcp.connection import list_tools

        declared = validated(McpConfig, config)
        try:
            offered = list_tools(declared)
        except UnscoredError as error:
            raise ConfigError("", str(error), "Start the server, or fix the entry") from error
        chosen = _choose([tool.name for tool in offered], declared.include, declared.exclude)
        server = {key: value for key, value in config.items() if key in McpServer.model_fields}
        return [_spec(tool, declared.prefix, server) for tool in offered if tool.name in chosen]


class McpTool(Tool):
    """One tool of a server; the tools of a trajectory share their session."""

    Config = McpToolConfig
    settings: McpToolConfig
    outside = True

    async def call(self, arguments: dict[str, Any]) -> str:
        """Call the tool on the server."""
        try:  # the SDK would end the session if encoding failed
            json.dumps(arguments, ensure_ascii=False).encode()
        except ValueError:
            raise ToolError("the arguments contain a lone surrogate (half a character); remove it") from None
        result = await (await self._connection()).call(self.settings.tool, arguments)
        text = render(result)
        if len(text) > MAX_MESSAGE_BYTES:
            raise ToolError(TOO_LARGE)
        text = truncate(self.settings.redact(text), MAX_RESULT_CHARS, "middle")
        if result.is_error:
            raise ToolError(text or f"{self.settings.tool} failed without saying why")
        return text

    async def _connection(self) -> McpConnection:
        from agent_rl.tools.builtin._mcp.connection import McpConnection, shared

        if self.settings.session == "shared":
            return await shared(self.settings)
        return await self.scope.get(("mcp", self.settings.key), lambda: McpConnection(self.settings))


class IdempotentMcpTool(McpTool):
    """A tool that the server annotates with `readOnlyHint` or `idempotentHint`."""

    idempotent = True


def render(result: CallToolResult) -> str:
    """Format a result for the policy."""
    parts = [_block(block) for block in result.content]
    if not any(block.type == "text" for block in result.content) and result.structured_content is not None:
        parts.insert(0, json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)


def _block(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource_link":
        return f"[resource {block.uri}]"
    if block.type != "resource":
        return _placeholder(block.mime_type, block.data)
    resource = block.resource
    if hasattr(resource, "text"):
        return str(resource.text)
    return _placeholder(resource.mime_type or f"resource {resource.uri}", resource.blob)


def _placeholder(kind: str, base64: str) -> str:
    return f"[{kind}, {len(base64.rstrip('=')) * 3 // 4} bytes]"


def _choose(offered: Sequence[str], include: Iterable[str] | None, exclude: Iterable[str]) -> set[str]:
    included = set(offered) if include is None else _matches(offered, include, "include")
    chosen = included - _matches(offered, exclude, "exclude")
    if not chosen:
        raise ConfigError("include, exclude", "no tool is left", did_you_mean("", offered))
    return chosen


def _matches(offered: Sequence[str], patterns: Iterable[str], key: str) -> set[str]:
    matches: set[str] = set()
    for pattern in patterns:
        matching = {name for name in offered if fnmatchcase(name, pattern)}
        if not matching:
            raise ConfigError(key, f"{pattern!r} matches none of the server's tools", did_you_mean(pattern, offered))
        matches |= matching
    return matches


def _spec(tool: RemoteTool, prefix: str, config: Mapping[str, Any]) -> ToolSpec:
    name = _NOT_IN_NAMES.sub("_", prefix + tool.name)
    description = (tool.description or "").strip() or tool.title or tool.name
    if not name.endswith(tool.name):
        description += f"\n(The server calls this tool {tool.name!r}.)"
    hints = tool.annotations
    repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    cls = IdempotentMcpTool if repeatable else McpTool
    return ToolSpec(name, description, _parameters(tool.input_schema), cls, {**config, "tool": tool.name})


def _parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a server's schema for the loader; drop `$schema`, because every schema is read as draft 2020-12."""
    properties = {name: {} if value is True else value for name, value in (schema.get("properties") or {}).items()}
    for name in schema.get("required") or []:
        properties.setdefault(name, {})
    kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return {**kept, "type": "object", "properties": properties}
