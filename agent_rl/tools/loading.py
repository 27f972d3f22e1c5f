"""A YAML file of tools, read into `ToolSpec`s. Every mistake in it is a `ConfigError` that says where and what to do.

    tools:
      - name: calculator                        # a built-in tool
      - class_name: my_package.tools.Search     # or my_tools.py:Search, beside this file
        config: {top_k: 3}
        timeout_s: 5

`name`, `description` and `parameters` override what the class says. verl's form (`class_name`, `config` with
`type: native`, `tool_schema`) is read as well, and so are verl's own `BaseTool` classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.importing import ClassNameError, find_class, tool_class_problem
from agent_rl.tools.spec import ToolSpec

__all__ = ["BUILT_IN_TOOLS", "ToolSpec", "load_tools"]

BUILT_IN_TOOLS = {"calculator": "agent_rl.tools.calculator.Calculator"}
"""Name -> class; imported only when it is used."""

_KEYS = ("name", "description", "parameters", "class_name", "config", "tool_schema", "timeout_s")
_FUNCTION_KEYS = ("name", "description", "parameters", "strict")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def load_tools(path: str | Path) -> list[ToolSpec]:
    """The tools of one YAML file, in its order.

    Args:
        path: the file; omegaconf interpolations such as `${oc.env:INDEX}` are resolved.

    Raises:
        ConfigError: naming the file, the entry, the field, the value and the remedy.
    """
    path = Path(path)
    specs: list[ToolSpec] = []
    for index, entry in enumerate(_read_entries(path)):
        reader = _Entry(path, index, entry)
        spec = reader.spec()
        if spec.name in (names := [other.name for other in specs]):
            problem = f"{spec.name!r} is already the name of tools[{names.index(spec.name)}]"
            reader.fail("name", problem, "Rename one of them")
        specs.append(spec)
    return specs


def _read_entries(path: Path) -> list[Any]:
    content = _read_yaml(path)
    if not isinstance(content, Mapping) or "tools" not in content:
        raise ConfigError(
            str(path), "no `tools` list at the top level", "Write `tools:` and below it one entry for each tool"
        )
    for key in content:
        if key != "tools":
            raise ConfigError(f"{path}: {key}", "unknown key", did_you_mean(str(key), ["tools"]))
    entries = content["tools"]
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{path}: tools", f"expected a list of entries, got {entries!r}", "Write at least `- name: calculator`"
        )
    return entries


def _read_yaml(path: Path) -> Any:
    try:
        return OmegaConf.to_container(OmegaConf.load(path), resolve=True, throw_on_missing=True)
    except FileNotFoundError:
        nearest = did_you_mean(path.name, (near.name for near in path.parent.glob("*.y*ml")))
        raise ConfigError(str(path), "no such file", nearest) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"not YAML: {error}", "Mend the syntax") from error
    except OmegaConfBaseException as error:
        key = f"{path}: {error.full_key}" if error.full_key else str(path)
        problem = str(error).splitlines()[0]
        raise ConfigError(key, problem, "Set the variable or write the value itself") from error
    except OSError as error:  # unreadable, or (says omegaconf) neither a mapping nor a list at the top
        raise ConfigError(str(path), f"cannot be read: {error}", "Name a readable file with a `tools` list") from error


class _Entry:
    """One entry of the list, read field by field."""

    def __init__(self, path: Path, index: int, entry: Any) -> None:
        self.path = path
        self.place = f"{path}: tools[{index}]"
        if not isinstance(entry, dict):
            name = entry if isinstance(entry, str) else "..."
            self.fail("", f"expected a mapping, got {entry!r}", f"Write `- name: {name}`")
        self.data: dict[str, Any] = {key: value for key, value in entry.items() if value is not None}
        label = self.data.get("name") or self.data.get("class_name")
        self.place += f" ({label})" if isinstance(label, str) else ""
        for key in entry:
            if key not in _KEYS:
                self.fail(str(key), f"unknown key (value {entry[key]!r})", did_you_mean(str(key), _KEYS))
        self._check_keys({key: value for key, value in self.data.items() if key != "config"}, "")

    def fail(self, field: str, problem: str, remedy: str) -> NoReturn:
        raise ConfigError(f"{self.place}.{field}" if field else self.place, problem, remedy)

    def spec(self) -> ToolSpec:
        """The entry's spec: what the class says, overridden by what the entry says."""
        declared = self._declared()
        cls = self._class()
        function = {**(_class_function(cls) if issubclass(cls, Tool) else _verl_function(cls)), **declared}
        for key in ("name", "description"):
            self._check_text(key, function.get(key), cls)
        if not _NAME.fullmatch(function["name"]):
            problem = f"{function['name']!r} cannot be a tool's name"
            self.fail(self._field("name"), problem, "Use 1 to 64 of the characters A-Z a-z 0-9 _ -")
        return ToolSpec(
            name=function["name"],
            description=function["description"],
            parameters=self._parameters(function, cls),
            cls=cls,
            config=self._config(cls),
            timeout_s=self._timeout(cls),
        )

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
        self._check_known("tool_schema.function", function, _FUNCTION_KEYS)
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
        if issubclass(cls, Tool):
            try:
                cls.check_config(config)
            except ValueError as error:
                self.fail("config", str(error), f"See {cls.__module__}.{cls.__qualname__}")
        return config

    def _timeout(self, cls: type) -> float | None:
        seconds = self.data.get("timeout_s", getattr(cls, "timeout_s", None))
        if seconds is None:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            remedy = "Write a number, or remove it for the run's default"
            self.fail("timeout_s", f"expected seconds above 0, got {seconds!r}", remedy)
        return float(seconds)

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
