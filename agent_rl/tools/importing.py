"""Finding the class that a tool's `class_name` names."""

from __future__ import annotations

import inspect
from pathlib import Path

from agent_rl.settings.importing import ClassNameError, find_object
from agent_rl.tools.base import Tool
from agent_rl.tools.toolset import Toolset

__all__ = ["find_class", "tool_class_problem"]

_VERL_METHODS = ("create", "execute", "release", "get_openai_tool_schema")


def find_class(class_name: str, folder: Path) -> type:
    """The class; see `agent_rl.settings.importing.find_object`.

    Raises:
        ClassNameError: when there is no such object, or it is not a class.
    """
    found = find_object(class_name, folder)
    if not isinstance(found, type):
        raise ClassNameError(
            f"{class_name!r} is a {type(found).__name__}, not a class", "Name a subclass of agent_rl.tools.Tool"
        )
    return found


def tool_class_problem(cls: type) -> tuple[str, str] | None:
    """(problem, remedy) of a class that cannot be used as a tool, or None."""
    name = cls.__qualname__
    if issubclass(cls, Toolset):
        return (f"{name} is abstract: tools not written", "Write it") if inspect.isabstract(cls) else None
    if not issubclass(cls, Tool):
        if all(callable(getattr(cls, method, None)) for method in _VERL_METHODS):
            return None
        return f"{name} is not a tool", "Derive it from agent_rl.tools.Tool and write `call`"
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        return f"{name} is abstract: {', '.join(missing)} not written", "Write it, or name a subclass that does"
    for method in ("start", "close"):
        if not inspect.iscoroutinefunction(getattr(cls, method)):
            return f"{name}.{method} is not `async def`", "Make it so; only `call` may be a plain function"
    return None
