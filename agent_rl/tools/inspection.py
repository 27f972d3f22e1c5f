"""Helps with writing a tool file: lists the built-in tools and their signatures, and makes a single call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import BudgetSettings
from agent_rl.tools.builtin import built_in_class, built_in_names
from agent_rl.tools.functions import FunctionTool
from agent_rl.tools.loading import dump_tools
from agent_rl.tools.runtime import ToolSession
from agent_rl.tools.spec import Toolset, ToolSpec
from agent_rl.trajectory import ToolCall, ToolResult


def built_in() -> list[tuple[str, str, str]]:
    """Return the name, the kind (tool or toolset) and a one-sentence summary of each built-in tool."""
    rows = []
    for name in built_in_names():
        cls = built_in_class(name)
        summary = inspect.getdoc(inspect.getmodule(cls)) or ""
        first = " ".join(summary.split("\n\n")[0].split()).removeprefix(f"`{name}`: ")
        rows.append((name, "toolset" if issubclass(cls, Toolset) else "tool", first))
    return rows


def signature(spec: ToolSpec) -> str:
    """Format a tool on one line: `search(query: string, top_k?: integer)`."""
    required = spec.parameters.get("required", [])
    arguments = []
    for name, schema in spec.parameters.get("properties", {}).items():
        kind = schema.get("type", "any") if isinstance(schema, Mapping) else "any"
        kind = "|".join(kind) if isinstance(kind, list) else kind
        arguments.append(f"{name}{'' if name in required else '?'}: {kind}")
    return f"{spec.name}({', '.join(arguments)})"


def call(
    specs: Sequence[ToolSpec], name: str, arguments: dict[str, Any], create_kwargs: Mapping[str, Any]
) -> ToolResult:
    """Make one call in a new trajectory, as the policy would.

    Raises:
        ConfigError: the file has no tool with this name.
        UnscoredError: the tool's infrastructure failed.
    """
    if name not in (names := [spec.name for spec in specs]):
        raise ConfigError("NAME", f"there is no tool {name!r} in this file", did_you_mean(name, names))

    async def run_once() -> ToolResult:
        kwargs = {name: {"create_kwargs": create_kwargs}}
        timeout_s = BudgetSettings().tool_timeout_s
        async with ToolSession(specs, tools_kwargs=kwargs, default_timeout_s=timeout_s) as session:
            (result,) = await session.run([ToolCall(name, arguments)])
        return result

    return asyncio.run(run_once())


def expand(specs: Sequence[ToolSpec]) -> str:
    """Return a tool file with every field filled in, so that it needs neither a server nor the defaults of classes."""
    return dump_tools({"tools": [_entry(spec) for spec in specs]})


def _entry(spec: ToolSpec) -> dict[str, Any]:
    function = spec.schema()["function"]
    limits = {
        "timeout_s": spec.timeout_s,
        "max_concurrency": spec.max_concurrency,
        "retries": spec.retries if getattr(spec.cls, "idempotent", False) else None,
        "cache": None if spec.cache == "off" else spec.cache,
        "reusable": spec.reusable,
    }
    is_function = issubclass(spec.cls, FunctionTool)
    entry: dict[str, Any] = dict(spec.config) if is_function else {"class_name": _class_name(spec.cls)}
    entry |= {"tool_schema": {"type": "function", "function": function}} if spec.is_verl else function
    entry |= {"config": dict(spec.config)} if spec.config and not is_function else {}
    return entry | {key: value for key, value in limits.items() if value is not None}


def _class_name(cls: type) -> str:
    """Return the `class_name` of an entry; for a class in a user's file, the name includes the path of the file."""
    if cls.__module__.startswith("agent_rl_user_"):
        return f"{inspect.getfile(cls)}:{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"
