"""A Python function as a tool: `- function: my_tools.py:weather` in a tool file.

The schema comes from the type hints, which are required, and from the docstring, whose text before the first section is
the description and whose `Args` section describes the arguments. An `async def` function is awaited; a plain function
runs in a thread. A function returns text, data that the policy reads as JSON, a `ToolOutput`, or, as in verl, a tuple
of one of these with a reward and metrics. Functions keep no state for a trajectory; a tool with state must be a class.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from agent_rl.errors import ConfigError, InvalidArgumentsError
from agent_rl.settings.errors import InvalidValueError, Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import defined_at
from agent_rl.tools.arguments import rewritten
from agent_rl.tools.base import Tool, ToolConfig, ToolOutput
from agent_rl.work.concurrency import in_thread

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):\s*|:(param|returns?)\b.*")
_ARGUMENT = re.compile(r"(?:\s+|:param\s+(?:\w+\s+)?)(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")


class FunctionConfig(ToolConfig):
    """The `config` of a function tool, which the loader writes."""

    function: str
    """`package.module.function`, or `file.py:function` with the file's absolute path."""


class FunctionTool(Tool):
    """A tool that calls a Python function."""

    Config = FunctionConfig

    def __init__(self, config: Mapping[str, Any], create_kwargs: Mapping[str, Any]) -> None:
        super().__init__(config, create_kwargs)
        if create_kwargs:
            problem = f"a function has no state to create, but the row has {sorted(create_kwargs)}"
            raise ConfigError("extra_info.tools_kwargs", problem, "Remove create_kwargs, or write a class")
        self._function, self._arguments = _function(self.settings.function)

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Call the function and return its result."""
        call = partial(self._function, **converted(self._arguments, arguments))
        result = call() if inspect.iscoroutinefunction(self._function) else await in_thread(call)
        return as_output(await result if inspect.isawaitable(result) else result)


def converted(model: type[BaseModel] | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Convert the arguments to the types in the hints, for example a string to a date, or a mapping to an object.

    Args:
        model: the pydantic model of the arguments; None means that the arguments are not converted.
        arguments: the arguments of a call.

    Raises:
        InvalidArgumentsError: an argument cannot be converted to its type.
    """
    if model is None:
        return arguments
    try:
        values = model.model_validate(arguments)
    except ValidationError as error:
        problem = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
        raise InvalidArgumentsError(problem) from error
    return {name: getattr(values, name) for name in values.model_fields_set}


def check_function(function: Any, place: Place) -> None:
    """Raise an error for an object that cannot be called as a tool.

    Raises:
        ConfigError: the object is not a function, or returns nothing.
    """
    if isinstance(function, type):
        raise place.error(f"{function.__qualname__} is a class, not a function", "Write class_name: instead")
    if not inspect.isroutine(function):
        raise place.error(f"the object is a {type(function).__name__}, not a function", "Use a function")
    if not may_return(function):
        what = f"{function.__name__} ({defined_at(function)})"
        raise place.error(f"{what} returns nothing", "Return the text that the policy reads")


def may_return(function: Any) -> bool:
    """Whether a function may return a value, because it has a `return` with a value or ends with a `raise`."""
    try:
        body: list[ast.AST] = list(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body)  # type: ignore[attr-defined]
    except (OSError, TypeError, SyntaxError, AttributeError, IndexError):  # without the source, assume it may
        return True
    if isinstance(body[-1], ast.Raise):
        return True
    while body:
        node = body.pop()
        if isinstance(node, ast.Return) and not (node.value is None or ast.unparse(node.value) == "None"):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            body += ast.iter_child_nodes(node)
    return False


def describe(function: Callable[..., Any], place: Place, *, parameters: bool) -> dict[str, Any]:
    """Return the name, the description and the parameters of a function.

    Args:
        function: the function.
        place: where the tool file refers to the function.
        parameters: whether to derive the parameters; not needed if the tool file contains them.

    Raises:
        ConfigError: a parameter has no type hint, or a hint without a JSON schema; the error names the function's line.
    """
    text, about = _documentation(function)
    description: dict[str, Any] = {"name": function.__name__, "description": text or None}
    if parameters:
        with place.around("See docs/guides/tools.md"):
            schema = argument_model(function, about).model_json_schema()
        schema.pop("additionalProperties")  # `converted` rejects unknown arguments anyway
        description["parameters"] = {"type": "object", **rewritten(schema, _plain)}
    return description


def file_of(name: str, folder: Path | None) -> str:
    """Return a function's name with the absolute path of its file, so that a worker in another folder finds it."""
    location, _, attribute = name.rpartition(":")
    if not location.endswith(".py"):
        return name
    return f"{load_file(location, folder or Path.cwd(), Place('function')).__file__}:{attribute}"


@cache
def _function(name: str) -> tuple[Callable[..., Any], type[BaseModel] | None]:
    """Return the function and the model of its arguments, or None as the model if the hints do not yield a schema."""
    function = find_object(name, Place("function"))
    try:
        return function, argument_model(function, {})
    except InvalidValueError:
        return function, None


def argument_model(function: Callable[..., Any], about: Mapping[str, str]) -> type[BaseModel]:
    """Return a pydantic model of the function's arguments.

    Raises:
        InvalidValueError: a parameter cannot be passed by keyword, or its type has no JSON schema.
    """
    unwrapped = inspect.unwrap(function)
    where = f"{function.__name__} ({defined_at(unwrapped)})"
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(unwrapped, include_extras=True)
    except Exception as error:  # evaluating the user's hints may raise any exception
        raise InvalidValueError(f"{where}: a type hint cannot be read: {error}", "Import its names") from error
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            problem = f"{where}: {parameter} has no name that the policy could use"
            raise InvalidValueError(problem, "Give the function only named parameters")
        if name not in hints:
            problem = f"{where}: the {name!r} parameter has no type hint"
            raise InvalidValueError(problem, f"Write, for example, `{name}: str`")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], Field(default, description=about[name]) if name in about else Field(default))
    try:
        return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        problem = f"{where}: a type hint has no JSON schema: {str(error).splitlines()[0]}"
        raise InvalidValueError(problem, "Use JSON types") from error


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text before a docstring's sections and the description of each argument, in Google or reST style."""
    text: list[str] = []
    about: dict[str, str] = {}
    section, last, depth = "", "", 0
    for line in (inspect.getdoc(function) or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if header := _SECTION.fullmatch(line):
            section, last = header[1] or header[2], ""
        if not section:
            text.append(line)
        elif section not in ("Args", "Arguments", "Parameters", "param"):
            continue
        elif (match := _ARGUMENT.fullmatch(line)) and (not last or indent <= depth):
            last, depth = match["name"], indent
            about[last] = match["text"].strip()
        elif last and indent:
            about[last] = f"{about[last]} {line.strip()}".strip()
        elif line:  # another section, or a line such as `:type name: str`
            last = ""
    return "\n".join(text).strip(), about


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a pydantic schema without generated titles, and without `null` for arguments that have a default."""
    kept = {key: value for key, value in schema.items() if (key, value) != ("default", None) and key != "title"}
    choices = [choice for choice in kept.get("anyOf", ()) if choice != {"type": "null"}]
    if "default" in schema and len(choices) == 1 and len(kept["anyOf"]) == 2:
        del kept["anyOf"]
        kept = {**choices[0], **kept}
    return kept


def as_output(result: Any) -> ToolOutput:
    """Convert a function's return value to a `ToolOutput`.

    Raises:
        TypeError: the value is None, or a tuple that is not (result, reward, metrics).
    """
    if isinstance(result, tuple):
        if not 1 <= len(result) <= 3:
            raise TypeError(f"a tuple must be (result, reward, metrics) or shorter, not {result!r}")
        output, (reward, metrics) = as_output(result[0]), (*result[1:], None, None)[:2]
        output.reward = output.reward if reward is None else float(reward)
        output.metrics |= metrics or {}
        return output
    if result is None:
        raise TypeError("the function returned None, but it must return text for the policy")
    if isinstance(result, ToolOutput):
        return result
    if type(result).__name__ == "ToolResponse":  # verl's
        return ToolOutput(result.text or "", images=[image for image in result.image or () if image is not None])
    return ToolOutput(result if isinstance(result, str) else _json(result))


def _json(value: Any) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False, default=str)
