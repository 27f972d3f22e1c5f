"""Functions that a row declares without an implementation; the turn that calls one of them is the answer.

    extra_info:
      functions: '[{"name": "set_timer", "description": "...", "parameters": {"type": "object", "properties": ...}}]'

In function-calling data sets (BFCL, xLAM), every row has its own functions. The agent offers the functions to the
policy as tools. The scorer gets the calls as JSON and compares them; the arguments of calls are not validated against
the schema first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from agent_rl.errors import ConfigError, ToolError
from agent_rl.tools.arguments import schema_problem
from agent_rl.tools.base import Tool
from agent_rl.tools.spec import ToolSpec
from agent_rl.trajectory import ToolCall

FUNCTIONS_KEY = "extra_info.functions"
_KEPT = 200
"""Number of rows whose functions are cached in memory, so that the samples of a row share the functions."""


class DeclaredFunction(Tool):
    """A function without an implementation."""

    async def call(self, arguments: dict[str, Any]) -> str:
        """Raise ToolError: the function cannot be executed."""
        raise ToolError("this function is only declared")


def declared_functions(value: Any) -> list[ToolSpec]:
    """Return tool specs for the functions that a row declares.

    Args:
        value: `extra_info.functions`, a list of `{name, description, parameters}` or its JSON; None means no functions.

    Raises:
        ConfigError: `value` has neither form, or a schema cannot be used.
    """
    if not value:
        return []
    try:
        return list(_specs(value if isinstance(value, str) else json.dumps(value)))
    except (TypeError, ValueError) as error:
        problem = f"the value is not a list of functions ({error})"
        raise ConfigError(FUNCTIONS_KEY, problem, "Write [{name, description, parameters}, ...]") from error


def as_answer(calls: Sequence[ToolCall]) -> str:
    """Encode calls as JSON for the `tool_match` scorer."""
    return json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)


@lru_cache(_KEPT)
def _specs(text: str) -> tuple[ToolSpec, ...]:
    functions = json.loads(text)
    if not isinstance(functions, list):
        raise ValueError(f"got a {type(functions).__name__}")
    return tuple(_spec(function) for function in functions)


def _spec(function: Any) -> ToolSpec:
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{function!r:.80} has no name")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if problem := schema_problem(parameters):
        raise ConfigError(f"{FUNCTIONS_KEY}.{function['name']}.parameters", *problem)
    return ToolSpec(function["name"], str(function.get("description") or ""), dict(parameters), DeclaredFunction)
