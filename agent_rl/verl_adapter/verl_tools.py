"""Converts agent_rl's tools to verl's form, and verl's tools to agent_rl's.

verl's worker loads `multi_turn.tool_config_path` itself and expects objects with its `BaseTool` methods. `load` returns
agent_rl's tools in this form, so that verl's key accepts every form of entry and verl's `tool_agent` can run the tools.
`to_specs` converts the tools of `load`, and tools written for verl, to the specs that agent_rl's loops use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, cast
from uuid import uuid4

from pydantic import ConfigDict
from verl.tools.function_tool import FunctionTool, normalize_function_tool_return
from verl.tools.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    ToolResponse,
)

from agent_rl.settings import BudgetSettings
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import Tool, ToolOutput, ToolSession, ToolSpec, load_tools
from agent_rl.trajectory import ToolCall


def tool_loading(module: ModuleType) -> None:
    """`verl.tools.tool_registry`: load tool YAML files with agent_rl's loader.

    verl's loader accepts only one form of entry, and its errors for a broken file do not name the entry.
    """
    module.initialize_tools_from_config = load  # type: ignore[attr-defined]


def load(path: str) -> list[Any]:
    """Load a tool YAML file for verl; this function replaces verl's `initialize_tools_from_config`.

    Raises:
        ConfigError: an entry is wrong; the error names the file, the entry and the field.
    """
    return [_verls_tool(spec) if spec.is_verl else VerlTool(spec) for spec in load_tools(path)]


class VerlTool:
    """One of agent_rl's tools with the methods of verl's `BaseTool`; a session lasts from `create` to `release`."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.tool_schema = _tool_schema(spec)
        self._sessions: dict[str, ToolSession] = {}

    async def create(
        self, instance_id: str | None = None, create_kwargs: Mapping[str, Any] | None = None, **_: Any
    ) -> tuple[str, ToolResponse]:
        """Open a session with only this tool."""
        instance_id = instance_id or uuid4().hex
        session = ToolSession(
            [self.spec],
            tools_kwargs={self.name: {"create_kwargs": dict(create_kwargs or {})}},
            default_timeout_s=BudgetSettings().tool_timeout_s,
            settings=ToolsSettings(on_error="observe", reuse_results=False),  # verl's loop lets the model see errors
        )
        self._sessions[instance_id] = await session.__aenter__()
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **_: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Run one call."""
        (result,) = await self._sessions[instance_id].run([ToolCall(self.name, parameters)])
        response = ToolResponse(text=result.text, **({"image": result.images} if result.images else {}))
        return response, result.reward, {"status": result.status.value, **result.metrics}

    async def release(self, instance_id: str, **_: Any) -> None:
        """Close the session."""
        await self._sessions.pop(instance_id).__aexit__(None, None, None)


class _Property(OpenAIFunctionPropertySchema):
    model_config = ConfigDict(extra="allow")
    type: str | list[str] | None = None  # type: ignore[assignment]


class _Parameters(OpenAIFunctionParametersSchema):
    model_config = ConfigDict(extra="allow")
    properties: dict[str, _Property]  # type: ignore[assignment]


class _Function(OpenAIFunctionSchema):
    parameters: _Parameters


class _ToolSchema(OpenAIFunctionToolSchema):
    """Keeps unknown keys (`items`, `minimum`), which verl's schema drops, and makes `type` optional."""

    function: _Function


def _tool_schema(spec: ToolSpec) -> OpenAIFunctionToolSchema:
    return _ToolSchema.model_validate(spec.schema())


def to_specs(tools: Iterable[Any]) -> list[ToolSpec]:
    """Convert the tools of verl's worker to specs for a `ToolSession`; a tool keeps its spec and thus its caches."""
    return [tool.spec if isinstance(tool, VerlTool) else _foreign_spec(tool) for tool in tools]


def _verls_tool(spec: ToolSpec) -> Any:
    """Create a tool from a subclass of verl's `BaseTool`, and attach the entry's limits, which verl cannot store."""
    tool = spec.cls(config={"type": "native", **spec.config}, tool_schema=_tool_schema(spec))
    own = _foreign_spec(tool)
    tool.agent_rl_spec = replace(
        own, timeout_s=spec.timeout_s, max_concurrency=spec.max_concurrency, reusable=spec.reusable
    )
    return tool


def _foreign_spec(tool: Any) -> ToolSpec:
    if "agent_rl_spec" not in vars(tool):
        function = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)["function"]
        parameters = function.get("parameters", {"type": "object", "properties": {}})
        cls = _FunctionTool if isinstance(tool, FunctionTool) else _BaseTool
        tool.agent_rl_spec = ToolSpec(tool.name, function["description"], parameters, cls, {"tool": tool})
    return cast(ToolSpec, tool.agent_rl_spec)


class _BaseTool(Tool):
    """A verl `BaseTool`, created once for a trajectory instead of once for each call."""

    outside = True  # calls to the tool may have any side effect

    async def start(self) -> None:
        self.instance_id, _ = await self.config["tool"].create(create_kwargs=dict(self.create_kwargs))

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        response, reward, metrics = await self.config["tool"].execute(self.instance_id, arguments)
        return ToolOutput(response.text or "", reward, metrics or {}, images=_images(response))

    async def close(self) -> None:
        if hasattr(self, "instance_id"):
            await self.config["tool"].release(self.instance_id)


class _FunctionTool(Tool):
    """One of verl's function tools, which have no state."""

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        response, reward, metrics = normalize_function_tool_return(await self.config["tool"].call(arguments))
        return ToolOutput(response.text or "", reward, metrics or {}, images=_images(response))


def _images(response: ToolResponse) -> list[Any]:
    return [image for image in response.image or () if image is not None]
