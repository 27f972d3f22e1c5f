"""Checks the classes and functions of a tool file: `call` takes all arguments, and returns a value for the policy."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from agent_rl.settings.user_code import defined_at
from agent_rl.tools.base import Tool

__all__ = ["call_problem", "is_verls", "may_return"]

_VERL_METHODS = ("create", "execute", "release", "get_openai_tool_schema")
_VALUES = ("str", "int", "float", "bool", "list")
"""Annotations that suit a single argument, although `call` gets a dict of all arguments."""


def is_verls(cls: Any) -> bool:
    """Whether `cls` is a class with the methods of verl's `BaseTool`."""
    return isinstance(cls, type) and all(callable(getattr(cls, method, None)) for method in _VERL_METHODS)


def call_problem(cls: type[Tool]) -> tuple[str, str] | None:
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


def may_return(function: Any) -> bool:
    """Whether a function may return a value: it has a `return` with a value, or only raises exceptions."""
    try:
        body: list[ast.AST] = list(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body)  # type: ignore[attr-defined]
    except (OSError, TypeError, SyntaxError, AttributeError, IndexError):  # no source code: assume that it does
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
