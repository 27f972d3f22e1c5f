"""Reads a YAML file of tools into `ToolSpec`s. A mistake in the file raises a `ConfigError` with location and remedy.

    tools:
      - name: calculator                        # a built-in tool, or a built-in toolset such as mcp
      - function: my_tools.py:weather           # a function (agent_rl.tools.functions)
      - class_name: my_package.tools.Search     # or my_tools.py:Search, next to this file
        config: {top_k: 3}
        timeout_s: 5                            # seconds for one call
        max_concurrency: 8                      # concurrent calls in one worker process
        retries: 2                              # only for an idempotent class
        reusable: true                          # equal arguments always produce the same text
        cache: trajectory                       # off, trajectory, or shared by a worker process

`name`, `description` and `parameters` (a JSON schema, or a mapping of each argument to its type) override what the
class or the function defines. verl's form (`class_name`, `config` with `type: native`, `tool_schema`) and verl's
`BaseTool` classes work too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agent_rl.errors import did_you_mean
from agent_rl.settings.errors import Place, read_yaml, validated
from agent_rl.settings.importing import find_class, find_object
from agent_rl.settings.user_code import defined_at, is_users
from agent_rl.tools.arguments import full_schema, schema_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.builtin import built_in_class, built_in_names
from agent_rl.tools.functions import FunctionTool, check_function, describe, file_of, may_return
from agent_rl.tools.spec import CacheScope, Toolset, ToolSpec

_FUNCTION = ("name", "description", "parameters")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VERL_METHODS = ("create", "execute", "release", "get_openai_tool_schema")
_VALUES = ("str", "int", "float", "bool", "list")
"""Type hints of `call` that suggest the value of a single argument, although it gets a dict of all arguments."""


def load_tools(path: str | Path) -> list[ToolSpec]:
    """Load the tools of a YAML file, in the order in which the file lists them.

    Args:
        path: the file; omegaconf interpolations such as `${oc.env:INDEX}` are resolved.

    Raises:
        ConfigError: an entry is wrong; the error names file, entry, field, value and remedy.
    """
    place = Place(file=Path(path))
    specs: list[ToolSpec] = []
    owner: dict[str, int] = {}
    for index, content in enumerate(validated(_File, read_yaml(Path(path)), place).tools):
        entry = _Entry(place / "tools" / index, content)
        for spec in entry.specs():
            if spec.name in owner:
                problem = f"{spec.name!r} is already the name of tools[{owner[spec.name]}]"
                raise (entry.place / "name").error(problem, "Rename one of them")
            owner[spec.name] = index
            specs.append(spec)
    return specs


def dump_tools(content: Mapping[str, Any]) -> str:
    """Return the text of a tool file that `load_tools` reads as `content`, with every `${` escaped."""
    from omegaconf import OmegaConf  # imported here because it is slow to import

    return OmegaConf.to_yaml(OmegaConf.create(_escaped(content)))


def _escaped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_escaped(part) for part in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _File(_Strict):
    tools: list[Any] = Field(min_length=1)


class _Function(_Strict):
    name: str | None = None
    description: str | None = None
    parameters: Any = None


class _OpenAIFunction(_Function):
    strict: Any = None


class _OpenAITool(_Strict):
    type: Literal["function"] = "function"
    function: _OpenAIFunction


class _Limits(_Strict):
    timeout_s: float | None = Field(default=None, gt=0)
    max_concurrency: int | None = Field(default=None, ge=1)
    retries: int | None = Field(default=None, ge=0)
    cache: Annotated[CacheScope | None, BeforeValidator(lambda value: "off" if value is False else value)] = None
    """YAML reads an unquoted `off` as false."""
    reusable: bool | None = None


class _Fields(_Limits, _Function):
    class_name: str | None = None
    function: str | None = None
    config: dict[Any, Any] | None = None
    tool_schema: _OpenAITool | None = None


class _Entry:
    """One entry of a file's `tools` list.

    Args:
        place: the entry's location in its file; paths of classes are relative to the file's folder.
        content: the entry, parsed from YAML.

    Raises:
        ConfigError: a key or a value cannot be used.
    """

    def __init__(self, place: Place, content: Any) -> None:
        self.place = place
        self.folder = None if place.file is None else place.file.parent
        if not isinstance(content, dict):
            name = content if isinstance(content, str) else "..."
            raise place.error(f"expected a mapping, got {content!r}", f"Write `- name: {name}`")
        label = content.get("name") or content.get("class_name") or content.get("function")
        if isinstance(label, str):
            self.place = place.labelled(label)
        _check_keys({key: value for key, value in content.items() if key != "config"}, self.place)
        self.fields = validated(_Fields, content, self.place)

    def specs(self) -> list[ToolSpec]:
        """Return the entry's tool, or the tools of its toolset.

        Raises:
            ConfigError: a field cannot be used; the error reports the first such field.
        """
        declared = self._declared()
        if self.fields.function is not None:
            specs = [self._function(self.fields.function, declared)]
        else:
            cls = self._class()
            specs = self._toolset(cls) if issubclass(cls, Toolset) else [self._tool(cls, declared)]
        for spec in specs:
            if not _NAME.fullmatch(spec.name):
                problem = f"{spec.name!r} cannot be a tool's name"
                self._fail("name", problem, "Use 1 to 64 of the characters A-Z a-z 0-9 _ -", in_function=True)
        return [self._limited(spec) for spec in specs]

    def _fail(self, field: str, problem: str, remedy: str, *, in_function: bool = False) -> NoReturn:
        place = self.place
        if in_function and self.fields.tool_schema is not None:
            place = place / "tool_schema" / "function"
        raise (place / field).error(problem, remedy)

    def _declared(self) -> dict[str, Any]:
        """Return the name, description and parameters that the entry itself sets."""
        fields, function = self.fields, self.fields.tool_schema
        if function is None:
            if fields.name is None and fields.class_name is None and fields.function is None:
                remedy = (
                    f"Write `name:` with a built-in tool ({', '.join(built_in_names())}), `class_name:` or `function:`"
                )
                raise self.place.error("the entry has no name, class_name or function", remedy)
            return _set_fields(fields)
        if fields.class_name is None:
            self._fail("class_name", "this key is required with tool_schema", "Set it to the class that answers calls")
        for key in _set_fields(fields):
            self._fail(key, "this key is also set in tool_schema", "Keep one of them")
        return _set_fields(function.function)

    def _class(self) -> type:
        fields, place = self.fields, self.place / "class_name"
        if fields.class_name is None:
            if fields.name not in built_in_names():
                near = did_you_mean(str(fields.name), built_in_names())
                remedy = f"{near} Or give the entry a class_name or a function"
                self._fail("name", f"{fields.name!r} is not a built-in tool", remedy)
            cls: type = built_in_class(fields.name)
            return cls
        cls = find_object(fields.class_name, place, self.folder)
        if inspect.isroutine(cls):
            self._fail("class_name", "the value is a function, not a class", "Write function: instead")
        if not (isinstance(cls, type) and all(callable(getattr(cls, method, None)) for method in _VERL_METHODS)):
            cls = find_class(fields.class_name, (Tool, Toolset), place, self.folder)
        if is_users(cls) and issubclass(cls, Tool) and (problem := _call_problem(cls)):
            self._fail("class_name", *problem)
        return cls

    def _function(self, name: str, declared: dict[str, Any]) -> ToolSpec:
        """Return the spec of a function; fields of the entry override the function's own."""
        for key in ("class_name", "config", "tool_schema"):
            if getattr(self.fields, key) is not None:
                self._fail(key, "this key is not allowed with function", "Remove one of them")
        place = self.place / "function"
        function = find_object(name, place, self.folder)
        check_function(function, place)
        described = describe(function, place, parameters="parameters" not in declared)
        config = {"function": file_of(name, self.folder)}
        return self._spec(name, {**described, **declared}, FunctionTool, config, "write a docstring")

    def _tool(self, cls: type, declared: dict[str, Any]) -> ToolSpec:
        """Return the spec of a class; fields of the entry override the class's own."""
        defaults = _set_fields(cls) if issubclass(cls, Tool) else _verl_function(cls)
        return self._spec(cls.__qualname__, {**defaults, **declared}, cls, self._config(cls), "set it on the class")

    def _spec(self, what: str, function: dict[str, Any], cls: type, config: dict[Any, Any], otherwise: str) -> ToolSpec:
        for key in ("name", "description"):
            if not isinstance(value := function.get(key), str) or not value.strip():
                problem = f"{what} has no {key}" if value is None else f"expected text, got {value!r}"
                self._fail(key, problem, f"Write `{key}:` here, or {otherwise}", in_function=True)
        parameters = function.get("parameters")
        if parameters is None:
            if self.fields.tool_schema is None:
                self._fail("parameters", f"{what} has no schema", f"Write `parameters:` here, or {otherwise}")
            parameters = {"type": "object"}  # as in verl, a tool without `parameters` takes none
        parameters = full_schema(parameters)
        if problem_and_remedy := schema_problem(parameters):
            self._fail("parameters", *problem_and_remedy, in_function=True)
        parameters = {**parameters, "properties": parameters.get("properties", {})}  # templates loop over `properties`
        limits = getattr(cls, "timeout_s", None), getattr(cls, "max_concurrency", None)
        return ToolSpec(function["name"], function["description"], parameters, cls, config, *limits)

    def _config(self, cls: type) -> dict[Any, Any]:
        config = self.fields.config or {}
        if config.get("type") == "native":  # verl's marker for a tool that is a Python class
            config = {key: value for key, value in config.items() if key != "type"}
        if issubclass(cls, Tool | Toolset):
            with (self.place / "config").around(f"See {cls.__module__}.{cls.__qualname__}"):
                cls.check_config(config)
        return config

    def _toolset(self, cls: type[Toolset]) -> list[ToolSpec]:
        for key in ("description", "parameters", "tool_schema"):
            if getattr(self.fields, key) is not None:
                self._fail(key, f"{cls.__qualname__} is a toolset, whose tools set this key themselves", "Remove it")
        config, place = self._config(cls), self.place / "config"
        with place.around(f"See {cls.__module__}.{cls.__qualname__}"):
            specs = cls.tools(config)
        for spec in specs:
            if problem := schema_problem(spec.parameters):
                raise (place.labelled(f"tool {spec.name!r}") / "parameters").error(*problem)
        return specs

    def _limited(self, spec: ToolSpec) -> ToolSpec:
        fields = self.fields
        limits = {key: value for key in _Limits.model_fields if (value := getattr(fields, key)) is not None}
        if issubclass(spec.cls, Tool) and spec.cls.idempotent:
            limits.setdefault("retries", spec.cls.retries)
        with self.place.around():
            return replace(spec, **limits)


def _set_fields(function: Any) -> dict[str, Any]:
    return {key: value for key in _FUNCTION if (value := getattr(function, key, None)) is not None}


def _call_problem(cls: type[Tool]) -> tuple[str, str] | None:
    """Return (problem, remedy) if `call` returns no text or takes a single argument's value, otherwise None."""
    function = inspect.unwrap(cls.call)
    parameter = list(inspect.signature(function).parameters.values())[1]
    what = f"{cls.__qualname__}.call ({defined_at(function)})"
    declared = (getattr(cls, "parameters", None) or {}).get("properties") or {}
    if str(getattr(parameter.annotation, "__name__", parameter.annotation)) in _VALUES or (
        parameter.name in declared
        and parameter.name not in ("arguments", "args")
        and parameter.annotation is inspect._empty
    ):
        remedy = "Write `async def call(self, arguments)` and read arguments[...]"
        return f"{what} takes {str(parameter)!r}, but gets a dict with all arguments", remedy
    if not may_return(function):
        return f"{what} returns nothing", "Return the text that the policy reads, or a ToolOutput"
    return None


def _check_keys(node: Any, place: Place) -> None:
    """Raise a ConfigError for keys that YAML does not read as text, such as an unquoted `on`, `no` or `1`."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str):
                raise place.error(f"the {key!r} key is not text", "Put the key in quotes")
            _check_keys(value, place / key)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            _check_keys(value, place / number)


def _verl_function(cls: Any) -> dict[str, Any]:
    """Return a verl `BaseTool`'s function schema, but skip the constructor, which prints and may need resources."""
    try:
        schema = cls.get_openai_tool_schema(cls.__new__(cls))
    except Exception:  # noqa: BLE001 - verl's default method needs an instance, so the schema must be in the YAML file
        return {}
    if hasattr(schema, "model_dump"):
        schema = schema.model_dump(exclude_unset=True, exclude_none=True)
    function = schema.get("function") if isinstance(schema, Mapping) else None
    return {key: function[key] for key in _FUNCTION if key in function} if function else {}
