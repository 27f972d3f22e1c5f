"""A Python function as a tool: `- function: my_tools.py:weather` in a tool file.

The schema comes from the type hints, which must be there, and from the docstring: its text before the first section is
the description, and its section `Args` describes the arguments. The function may be `async def`; any other runs in a
thread. It returns text, or data that the policy reads as JSON, a `ToolOutput`, or as in verl a tuple of one of these
with a reward and metrics. It keeps no state for a trajectory: that is what a class is for.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from agent_rl.errors import ConfigError, InvalidArgumentsError
from agent_rl.settings.errors import InvalidValueError, Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.user_code import defined_at
from agent_rl.tools.arguments import rewritten
from agent_rl.tools.base import Tool, ToolConfig, ToolOutput
from agent_rl.tools.class_check import may_return
from agent_rl.work.concurrency import in_thread

__all__ = ["FunctionTool", "check_function", "describe", "file_of"]

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):\s*|:(param|returns?)\b.*")
_ARGUMENT = re.compile(r"(?:\s+|:param\s+(?:\w+\s+)?)(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")


class FunctionConfig(ToolConfig):
    """The `config` of a function tool, which the loader writes."""

    function: str
    """`package.module.function`, or `file.py:function` with the file's whole path."""


class FunctionTool(Tool):
    """A tool that calls a function."""

    Config = FunctionConfig

    def __init__(self, config: Mapping[str, Any], create_kwargs: Mapping[str, Any]) -> None:
        super().__init__(config, create_kwargs)
        if create_kwargs:
            problem = f"a function has no state to create, and the row gives {sorted(create_kwargs)}"
            raise ConfigError("extra_info.tools_kwargs", problem, "Remove create_kwargs, or write a class")
        self._function, self._arguments = _function(self.settings.function)

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """The function's result."""
        call = partial(self._function, **self._converted(arguments))
        result = call() if inspect.iscoroutinefunction(self._function) else await in_thread(call)
        return _output(await result if inspect.isawaitable(result) else result)

    def _converted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the type hints want them: a date for a text, an object for a mapping."""
        if self._arguments is None:
            return arguments
        try:
            made = self._arguments.model_validate(arguments)
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
            raise InvalidArgumentsError(said) from error
        return {name: getattr(made, name) for name in made.model_fields_set}


def check_function(function: Any, place: Place) -> None:
    """Refuse what cannot be called as a tool.

    Raises:
        ConfigError: it is no function, or returns nothing.
    """
    if isinstance(function, type):
        raise place.error(f"{function.__qualname__} is a class, not a function", "Write class_name: instead")
    if not inspect.isroutine(function):
        raise place.error(f"it is a {type(function).__name__}, not a function", "Name a function")
    if not may_return(function):
        what = f"{function.__name__} ({defined_at(function)})"
        raise place.error(f"{what} returns nothing", "Return the text that the policy reads")


def describe(function: Callable[..., Any], place: Place, *, parameters: bool) -> dict[str, Any]:
    """Name, description and parameters of a function.

    Args:
        function: the function.
        place: of its name in the tool file.
        parameters: whether the parameters are needed; the tool file may have them.

    Raises:
        ConfigError: a parameter has no type hint, or one that no JSON schema expresses; with the function's line.
    """
    text, about = _documentation(function)
    found: dict[str, Any] = {"name": function.__name__, "description": text or None}
    if parameters:
        with place.around("See docs/guides/tools.md"):
            schema = _model(function, about).model_json_schema()
        schema.pop("additionalProperties")  # an argument too many is answered without it
        found["parameters"] = {"type": "object", **rewritten(schema, _plain)}
    return found


def file_of(name: str, folder: Path | None) -> str:
    """The name of a function with its file's whole path, so that a worker in another folder finds it."""
    location, colon, attribute = name.rpartition(":")
    if not location.endswith(".py"):
        return name
    path = Path(location).expanduser()
    places = (base.resolve() for base in ((folder or Path.cwd()) / path, Path.cwd() / path))
    return f"{next(each for each in places if each.is_file())}{colon}{attribute}"


@cache
def _function(name: str) -> tuple[Callable[..., Any], type[BaseModel] | None]:
    """The function, and the model of its arguments; None for one whose parameters the tool file has."""
    function = find_object(name, Place("function"))
    try:
        return function, _model(function, {})
    except InvalidValueError:
        return function, None


def _model(function: Callable[..., Any], about: Mapping[str, str]) -> type[BaseModel]:
    """A pydantic model of the arguments.

    Raises:
        InvalidValueError: the function cannot be called by name with arguments of known types.
    """
    own = inspect.unwrap(function)
    where = f"{function.__name__} ({defined_at(own)})"
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(own, include_extras=True)
    except Exception as error:  # whatever evaluating the user's hints raises
        raise InvalidValueError(f"{where}: a type hint cannot be read: {error}", "Import what it names") from error
    for name, each in inspect.signature(function).parameters.items():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            problem = f"{where}: {each} has no name of its own for the policy to use"
            raise InvalidValueError(problem, "Give the function named parameters only")
        if name not in hints:
            remedy = f"Write for example `{name}: str`, or `parameters:` in the tool file"
            raise InvalidValueError(f"{where}: the parameter {name!r} has no type hint", remedy)
        default = ... if each.default is each.empty else each.default
        fields[name] = (hints[name], Field(default, description=about.get(name)))
    try:
        return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        problem = f"{where}: a type hint that has no JSON schema: {str(error).splitlines()[0]}"
        raise InvalidValueError(problem, "Use types of JSON, or write `parameters:` in the tool file") from error


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's text before its sections, and what it says about each argument, in Google's form or reST's."""
    text: list[str] = []
    about: dict[str, str] = {}
    section, last = "", ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if header := _SECTION.fullmatch(line):
            section = header[1] or header[2]
        if section in ("Args", "Arguments", "Parameters", "param") and (found := _ARGUMENT.fullmatch(line)):
            last = found["name"]
            about[last] = found["text"].strip()
        elif section in ("Args", "Arguments", "Parameters", "param") and last and line.startswith(" "):
            about[last] = f"{about[last]} {line.strip()}".strip()
        elif not section:
            text.append(line)
    return "\n".join(text).strip(), about


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of pydantic without the title that it makes of a name, and without `null` where a default is."""
    found = {key: value for key, value in schema.items() if (key, value) != ("default", None) and key != "title"}
    choices = [each for each in found.get("anyOf", ()) if each != {"type": "null"}]
    if "default" in schema and len(choices) == 1 and len(found["anyOf"]) == 2:
        del found["anyOf"]
        found = {**choices[0], **found}
    return found


def _output(result: Any) -> ToolOutput:
    """What a function returned as a `ToolOutput`.

    Raises:
        TypeError: it returned nothing, or a tuple that is not (result, reward, metrics).
    """
    if isinstance(result, tuple):
        if not 1 <= len(result) <= 3:
            raise TypeError(f"a tuple must be (result, reward, metrics) or shorter, not {result!r}")
        made, (reward, metrics) = _output(result[0]), (*result[1:], None, None)[:2]
        made.reward = made.reward if reward is None else float(reward)
        made.metrics |= metrics or {}
        return made
    if result is None:
        raise TypeError("the function returned None; it must return text for the policy")
    if isinstance(result, ToolOutput):
        return result
    if type(result).__name__ == "ToolResponse":  # verl's
        return ToolOutput(result.text or "", images=[image for image in result.image or () if image is not None])
    return ToolOutput(result if isinstance(result, str) else _json(result))


def _json(value: Any) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False, default=str)
