"""One entry of a tool file, read field by field; every mistake is a `ConfigError` that names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.importing import ClassNameError
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.importing import find_class, tool_class_problem
from agent_rl.tools.spec import ToolSpec
from agent_rl.tools.toolset import Toolset

__all__ = ["BUILT_IN_TOOLS", "Entry"]

BUILT_IN_TOOLS = {
    "calculator": "agent_rl.tools.builtin.calculator.Calculator",
    "check_answer": "agent_rl.tools.builtin.check_answer.CheckAnswer",
    "http": "agent_rl.tools.builtin.http.Http",
    "mcp": "agent_rl.tools.builtin.mcp.Mcp",
    "python": "agent_rl.tools.builtin.python.Python",
    "sandbox_fusion": "agent_rl.tools.builtin.sandbox_fusion.SandboxFusion",
    "search": "agent_rl.tools.builtin.search.Search",
    "sql": "agent_rl.tools.builtin.sql.Sql",
    "submit_answer": "agent_rl.tools.builtin.submit_answer.SubmitAnswer",
    "sympy": "agent_rl.tools.builtin.sympy.SymPy",
}
"""Name -> class; imported only when it is used."""

_FUNCTION_KEYS = ("name", "description", "parameters")
_LIMIT_KEYS = ("timeout_s", "max_concurrency", "retries", "cache")
_KEYS = (*_FUNCTION_KEYS, "class_name", "config", "tool_schema", *_LIMIT_KEYS)
_CACHE_SCOPES = ("off", "trajectory", "shared")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Entry:
    """One entry of the list.

    Args:
        path: the file, for messages and as the place where the paths of classes begin.
        index: the entry's position in the list.
        content: what YAML gave.
    """

    def __init__(self, path: Path, index: int, content: Any) -> None:
        self.path = path
        self.place = f"{path}: tools[{index}]"
        if not isinstance(content, dict):
            name = content if isinstance(content, str) else "..."
            self.fail("", f"expected a mapping, got {content!r}", f"Write `- name: {name}`")
        self.data: dict[str, Any] = {key: value for key, value in content.items() if value is not None}
        label = self.data.get("name") or self.data.get("class_name")
        self.place += f" ({label})" if isinstance(label, str) else ""
        for key in content:
            if key not in _KEYS:
                self.fail(str(key), f"unknown key (value {content[key]!r})", did_you_mean(str(key), _KEYS))
        self._check_keys({key: value for key, value in self.data.items() if key != "config"}, "")

    def fail(self, field: str, problem: str, remedy: str) -> NoReturn:
        """Raise the `ConfigError` for one field of this entry ("": the entry itself)."""
        raise ConfigError(f"{self.place}.{field}" if field else self.place, problem, remedy)

    def specs(self) -> list[ToolSpec]:
        """The entry's tools: one, unless it names a toolset.

        Raises:
            ConfigError: for the first field that cannot be used.
        """
        declared = self._declared()
        cls = self._class()
        specs = self._toolset(cls) if issubclass(cls, Toolset) else [self._tool(cls, declared)]
        for spec in specs:
            if not _NAME.fullmatch(spec.name):
                problem = f"{spec.name!r} cannot be a tool's name"
                self.fail(self._field("name"), problem, "Use 1 to 64 of the characters A-Z a-z 0-9 _ -")
        return [self._limited(spec) for spec in specs]

    def _tool(self, cls: type, declared: dict[str, Any]) -> ToolSpec:
        """What the class says, overridden by what the entry says."""
        function = {**(_class_function(cls) if issubclass(cls, Tool) else _verl_function(cls)), **declared}
        for key in ("name", "description"):
            self._check_text(key, function.get(key), cls)
        parameters = self._parameters(function, cls)
        timeout_s, at_once = getattr(cls, "timeout_s", None), getattr(cls, "max_concurrency", None)
        config = self._config(cls)
        return ToolSpec(function["name"], function["description"], parameters, cls, config, timeout_s, at_once)

    def _toolset(self, cls: type[Toolset]) -> list[ToolSpec]:
        for key in ("description", "parameters", "tool_schema"):
            if key in self.data:
                self.fail(key, f"{cls.__qualname__} is a toolset, whose tools have their own", "Remove it")
        config = self._config(cls)
        try:
            specs = cls.tools(config)
        except ValueError as error:
            self.fail("config", str(error).rstrip("."), f"See {cls.__module__}.{cls.__qualname__}")
        for spec in specs:
            if problem := schema_problem(spec.parameters):
                self.fail(f"config (tool {spec.name!r}).parameters", *problem)
        return specs

    def _limited(self, spec: ToolSpec) -> ToolSpec:
        repeatable = spec.cls if issubclass(spec.cls, Tool) and spec.cls.idempotent else None
        for key in ("retries", "cache"):
            if self.data.get(key) and self.data[key] != "off" and repeatable is None:
                problem = f"{spec.cls.__qualname__} does not declare itself idempotent (value {self.data[key]!r})"
                self.fail(key, problem, "Remove it, or set `idempotent = True` on a class whose calls may be repeated")
        cache = self.data.get("cache", "off")
        if cache is False:  # YAML's reading of an unquoted `off`
            cache = "off"
        if cache not in _CACHE_SCOPES:
            self.fail("cache", f"unknown value {cache!r}", did_you_mean(str(cache), _CACHE_SCOPES))
        return replace(
            spec,
            timeout_s=self._seconds(spec.timeout_s),
            max_concurrency=self._count("max_concurrency", spec.max_concurrency, least=1),
            retries=self._count("retries", repeatable.retries if repeatable else 0, least=0) or 0,
            cache=cache,
        )

    def _seconds(self, default: float | None) -> float | None:
        seconds = self.data.get("timeout_s", default)
        if seconds is None:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            remedy = "Write a number, or remove it for the run's default"
            self.fail("timeout_s", f"expected seconds above 0, got {seconds!r}", remedy)
        return float(seconds)

    def _count(self, key: str, default: int | None, least: int) -> int | None:
        value = self.data.get(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            self.fail(
                key, f"expected a whole number of at least {least}, got {value!r}", "Write one, or remove the key"
            )
        return value

    def _field(self, key: str) -> str:
        return f"tool_schema.function.{key}" if "tool_schema" in self.data else key

    def _parameters(self, function: dict[str, Any], cls: type) -> dict[str, Any]:
        parameters = function.get("parameters")
        if parameters is None:
            if "tool_schema" not in self.data:
                remedy = "Write `parameters:` here, or set it on the class"
                self.fail("parameters", f"{cls.__qualname__} has no schema", remedy)
            parameters = {"type": "object"}  # as in verl: a tool without parameters
        if problem := schema_problem(parameters):
            self.fail(self._field("parameters"), *problem)
        return {**parameters, "properties": parameters.get("properties", {})}  # chat templates iterate over it

    def _declared(self) -> dict[str, Any]:
        """Name, description and parameters as the entry itself gives them."""
        if "tool_schema" not in self.data:
            if "name" not in self.data and "class_name" not in self.data:
                remedy = f"Write `name:` with a built-in tool ({', '.join(BUILT_IN_TOOLS)}) or `class_name:`"
                self.fail("", "neither name nor class_name", remedy)
            return {key: self.data[key] for key in ("name", "description", "parameters") if key in self.data}
        if "class_name" not in self.data:
            self.fail("class_name", "missing beside tool_schema", "Name the class that answers the calls")
        for key in ("name", "description", "parameters"):
            if key in self.data:
                self.fail(key, "given beside tool_schema, which says it too", "Keep one of them")
        schema = self.data["tool_schema"]
        if not isinstance(schema, dict) or not isinstance(schema.get("function"), dict):
            remedy = "Write {type: function, function: {name, description, parameters}}"
            self.fail("tool_schema", f"expected an OpenAI function, got {schema!r}", remedy)
        self._check_known("tool_schema", schema, ("type", "function"))
        if schema.get("type", "function") != "function":
            self.fail("tool_schema.type", f"expected 'function', got {schema['type']!r}", "Write `type: function`")
        function = schema["function"]
        self._check_known("tool_schema.function", function, (*_FUNCTION_KEYS, "strict"))
        return {key: value for key, value in function.items() if value is not None and key != "strict"}

    def _class(self) -> type:
        class_name = self.data.get("class_name")
        if class_name is None:
            name = self.data["name"]
            if not isinstance(name, str) or name not in BUILT_IN_TOOLS:
                remedy = f"{did_you_mean(str(name), BUILT_IN_TOOLS)} Or give the entry a class_name"
                self.fail("name", f"{name!r} is not a built-in tool", remedy)
            class_name = BUILT_IN_TOOLS[name]
        if not isinstance(class_name, str):
            remedy = "Write package.module.Class, or path/to/file.py:Class"
            self.fail("class_name", f"expected text, got {class_name!r}", remedy)
        try:
            cls = find_class(class_name, self.path.parent)
        except ClassNameError as error:
            raise ConfigError(f"{self.place}.class_name", error.problem, error.remedy) from error
        if problem := tool_class_problem(cls):
            self.fail("class_name", *problem)
        return cls

    def _config(self, cls: type) -> dict[str, Any]:
        config = self.data.get("config", {})
        if not isinstance(config, dict):
            self.fail("config", f"expected a mapping, got {config!r}", "Write keys below it, or remove it")
        if config.get("type") == "native":  # verl's marker for a tool that is a Python class
            config = {key: value for key, value in config.items() if key != "type"}
        if issubclass(cls, Tool | Toolset):
            try:
                cls.check_config(config)
            except ValueError as error:
                self.fail("config", str(error).rstrip("."), f"See {cls.__module__}.{cls.__qualname__}")
        return config

    def _check_text(self, key: str, value: Any, cls: type) -> None:
        field = self._field(key)
        if value is None:
            self.fail(field, f"{cls.__qualname__} has none", f"Write `{key}:` here, or set it on the class")
        if not isinstance(value, str) or not value.strip():
            self.fail(field, f"expected text, got {value!r}", "Write some; the policy reads it")

    def _check_known(self, field: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in given:
            if key not in known:
                self.fail(f"{field}.{key}", f"unknown key (value {given[key]!r})", did_you_mean(str(key), known))

    def _check_keys(self, node: Any, field: str) -> None:
        """YAML reads an unquoted `on`, `no` or `1` as something else than text, and a schema would silently miss it."""
        if isinstance(node, dict):
            for key, value in node.items():
                if not isinstance(key, str):
                    self.fail(field, f"the key {key!r} is not text", "Put it in quotes")
                self._check_keys(value, f"{field}.{key}".lstrip("."))
        elif isinstance(node, list):
            for value in node:
                self._check_keys(value, field)


def _class_function(cls: type) -> dict[str, Any]:
    values = {key: getattr(cls, key, None) for key in ("name", "description", "parameters")}
    return {key: value for key, value in values.items() if value is not None}


def _verl_function(cls: Any) -> dict[str, Any]:
    """What a verl `BaseTool` says about itself, without constructing it, which prints and may need resources."""
    try:
        schema = cls.get_openai_tool_schema(cls.__new__(cls))
    except Exception:  # noqa: BLE001 - the base class's needs an instance; then the YAML file has to say it
        return {}
    if hasattr(schema, "model_dump"):
        schema = schema.model_dump(exclude_unset=True, exclude_none=True)
    function = schema.get("function") if isinstance(schema, Mapping) else None
    return {key: function[key] for key in ("name", "description", "parameters") if key in function} if function else {}
