"""Checks what a tool file names as a class: it is a tool, and its methods can be called and give a text."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from agent_rl.settings.methods import method_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.spec import Toolset
from agent_rl.user_code import defined_at, is_users

__all__ = ["class_problem", "may_return"]

_VERL_METHODS = ("create", "execute", "release", "get_openai_tool_schema")
_VALUES = ("str", "int", "float", "bool", "list")
"""Annotations of one argument's value, where `call` gets all arguments."""


def class_problem(cls: Any) -> tuple[str, str] | None:
    """(problem, remedy) of what cannot be used as a tool's class, with the line of a wrong method; None: it can."""
    if not isinstance(cls, type):
        remedy = "Write function: instead" if inspect.isroutine(cls) else "Name a subclass of agent_rl.tools.Tool"
        return f"it is a {type(cls).__name__}, not a class", remedy
    name = cls.__qualname__
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        return f"{name} is abstract: {', '.join(missing)} not written", "Write it, or name a subclass that does"
    if issubclass(cls, Toolset) or all(callable(getattr(cls, method, None)) for method in _VERL_METHODS):
        return None
    if not issubclass(cls, Tool):
        return f"{name} is not a tool", "Derive it from agent_rl.tools.Tool and write `call`"
    return (method_problem(cls, Tool) or _call_problem(cls)) if is_users(cls) else None


def _call_problem(cls: type[Tool]) -> tuple[str, str] | None:
    """What is wrong with `call` whatever the arguments are: it gives no text, or takes one argument for all of them."""
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


def may_return(function: Any) -> bool:
    """Whether a function may return a value: it has a `return` with one, or only raises."""
    try:
        body: list[ast.AST] = list(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body)  # type: ignore[attr-defined]
    except (OSError, TypeError, SyntaxError, AttributeError, IndexError):  # without a source: a run will tell
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
