"""Configured tools: `ToolSpec` for one tool, `Toolset` for an entry that defines several tools."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from jsonschema.protocols import Validator
from referencing import Registry

from agent_rl.errors import ConfigError, FatalError
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.bounded_schema import bounded

CacheScope = Literal["off", "trajectory", "shared"]


@dataclass(frozen=True)
class ToolSpec:
    """A tool's name and schema, which the policy sees, and the class and config that answer its calls.

    All trajectories share the spec; each trajectory creates its own instance of the tool.

    Raises:
        ConfigError: `retries` is set for a class that is not idempotent, or `cache` for a tool that is not reusable.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    cls: type
    config: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    """Maximum number of seconds for one call; None means the session's default."""
    max_concurrency: int | None = None
    """Maximum number of concurrent calls in one worker process, over all trajectories; None means no limit."""
    retries: int = 0
    """Number of retries of a call after an infrastructure failure, within the call's time limit."""
    cache: CacheScope = "off"
    """Where equal calls share a result: nowhere, in one trajectory, or in all trajectories of a worker process."""
    reusable: bool | None = None
    """Whether equal arguments always yield the same text, regardless of earlier calls; None means the class's value."""

    def __post_init__(self) -> None:
        name = self.cls.__qualname__
        if self.retries and not getattr(self.cls, "idempotent", False):
            remedy = "Remove it, or set `idempotent = True` on a class whose calls may be sent twice"
            raise ConfigError("retries", f"{name} is not idempotent (value {self.retries})", remedy)
        if self.cache != "off" and self.is_verl:
            raise ConfigError("cache", f"{name} is a verl class, which has no cache", "Remove it, or write a Tool")
        if self.cache != "off" and not self.may_be_reused:
            remedy = "Remove it, or write `reusable: true` if the arguments alone determine the result"
            raise ConfigError("cache", f"{name} is not reusable (value {self.cache!r})", remedy)

    @classmethod
    def from_class(cls, tool: type[Tool], *, config: Mapping[str, Any] | None = None) -> ToolSpec:
        """Return the spec for a YAML entry that contains only this class's name.

        Raises:
            ConfigError: the class's schema cannot be used.
        """
        for attribute in ("name", "description", "parameters"):
            if not hasattr(tool, attribute):
                raise ConfigError(f"{tool.__qualname__}.{attribute}", "the attribute is not set", "Set it on the class")
        if problem := schema_problem(tool.parameters):
            raise ConfigError(f"{tool.__qualname__}.parameters", *problem)
        limits = (tool.timeout_s, tool.max_concurrency, tool.retries if tool.idempotent else 0)
        return cls(tool.name, tool.description, tool.parameters, tool, dict(config or {}), *limits)

    @property
    def is_verl(self) -> bool:
        """Whether `cls` is a verl `BaseTool`, which needs an adapter and takes `(config, tool_schema)` as arguments."""
        return not issubclass(self.cls, Tool)

    @property
    def may_be_reused(self) -> bool:
        """Whether the result of an equal call may be reused instead of calling the tool again."""
        return getattr(self.cls, "reusable", False) if self.reusable is None else self.reusable

    @property
    def may_be_repeated(self) -> bool:
        """Whether `agent-rl fork` may send a recorded call again; see `Tool.outside`."""
        return bool(self.reusable) or not (getattr(self.cls, "outside", False) or "url" in self.config)

    def schema(self) -> dict[str, Any]:
        """Return the OpenAI function dict, a copy that the caller may change."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": copy.deepcopy(self.parameters),
        }
        return {"type": "function", "function": function}

    def create(self, create_kwargs: Mapping[str, Any] | None = None) -> Tool:
        """Create an instance for one trajectory.

        Args:
            create_kwargs: the row's values, which are copied, because the samples of a row share them in memory, and a
                tool that changed them would leak state into the next trajectory.

        Raises:
            FatalError: the class is a verl `BaseTool`, which needs an adapter.
        """
        if self.is_verl:
            raise FatalError(f"tool {self.name!r}: {self.cls.__qualname__} is a verl BaseTool and needs verl's adapter")
        tool: Tool = self.cls(MappingProxyType(dict(self.config)), copy.deepcopy(dict(create_kwargs or {})))
        return tool

    @cached_property
    def validator(self) -> Validator:
        """Validator of `parameters` that fetches no remote schemas; it is cached because building it is slow."""
        return bounded()(self.parameters, registry=Registry())  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:  # omits cached values, because pickle rejects a validator
        return {item.name: getattr(self, item.name) for item in fields(self)}


class Toolset(ABC):
    """One YAML entry that defines several tools, such as the tools of a server. The class is never instantiated.

        class Dice(Toolset):
            name = "dice"

            @classmethod
            def tools(cls, config):
                return [ToolSpec(f"d{n}", "Roll a die.", NO_PARAMETERS, Die, {"sides": n}) for n in config["sides"]]

    The entry's other fields (`timeout_s`, `cache`, ...) apply to each of its tools.
    """

    name: ClassVar[str]

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ValueError for an invalid `config`."""
        return None

    @classmethod
    @abstractmethod
    def tools(cls, config: Mapping[str, Any]) -> list[ToolSpec]:
        """Return the tools. Each rollout worker calls this method once, when the YAML file is loaded; it may block.

        Raises:
            ValueError: the `config` is invalid; the loader adds file, entry and field to the message.
            UnscoredError: the server that lists the tools cannot be reached; the run does not start.
        """
