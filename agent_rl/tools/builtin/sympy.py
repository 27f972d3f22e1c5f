"""`sympy`: exact algebra, calculus and matrices, written as people and models write mathematics.

    {"operation": "solve", "expression": "x^2 - 5x + 6 = 0"}
    {"operation": "integrate", "expression": "x sin(x)", "lower": 0, "upper": "pi"}
    {"expression": "limit(sin(x)/x, x, 0)"}

SymPy's parser evaluates its input as Python, and its algorithms may run indefinitely, so everything is computed in the
sandbox under limits. `_sympy.notation` only rewrites text; `_sympy.program` runs in the sandbox.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.sandbox import TOOL_CONCURRENCY, UNBOUNDED, Execution, ExecutionStatus, raise_if_not_run, shared_sandbox
from agent_rl.tools.base import Tool, ToolConfig
from agent_rl.tools.builtin._sympy.notation import to_sympy

_PROGRAM = (Path(__file__).with_name("_sympy") / "program.py").read_text("utf-8")
_MAX_CHARS = 4000
_VALUE = {"type": ["string", "number"]}


class SymPyConfig(ToolConfig):
    """The entry's `config`."""

    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Time limit for one computation, in seconds, excluding time spent waiting for a core."""
    memory_mb: int = Field(default=1024, ge=64)
    unsafe: bool = False
    """Whether to compute even if the machine offers no isolation."""


class SymPy(Tool):
    """A stateless tool that runs one computation per call."""

    name = "sympy"
    Config = SymPyConfig
    settings: SymPyConfig
    idempotent = reusable = True
    max_concurrency = TOOL_CONCURRENCY
    description = (
        "Exact algebra and calculus. Write x^2 or x**2, 2x or 2*x, equations with =, several separated by ;, "
        "matrices as [[1, 2], [3, 4]], oo for infinity. SymPy's own functions can be used in the expression."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "expression": {"type": "string", "description": "For example x^2 - 5x + 6 = 0"},
            "operation": {
                "type": "string",
                "enum": [
                    *("evaluate", "numeric", "solve", "simplify", "expand", "factor", "differentiate", "integrate"),
                    *("limit", "series", "sum", "product", "determinant", "inverse", "eigenvalues", "rref"),
                ],
                "description": "evaluate (the default) computes the expression as it is written",
            },
            "variable": {"type": "string", "description": "For example x; several as x, y"},
            "lower": {**_VALUE, "description": "Lower bound of an integral, a sum or a product"},
            "upper": {**_VALUE, "description": "Upper bound"},
            "point": {**_VALUE, "description": "Where to take a limit (0+ from the right), a series or a value"},
            "order": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Of a derivative or a series"},
        },
        "required": ["expression"],
    }
    timeout_s = 600.0

    async def start(self) -> None:
        """Get the worker's sandbox."""
        self.sandbox = await shared_sandbox(max_concurrency=UNBOUNDED, unsafe=self.settings.unsafe)

    async def call(self, arguments: dict[str, Any]) -> str:
        """Return the exact result, with a decimal value where that helps."""
        request = {"operation": "evaluate", **arguments, "expression": to_sympy(arguments["expression"])}
        for key in ("lower", "upper", "point"):
            if key in request:  # reduces "x -> 0" and "x = 0" to 0
                request[key] = to_sympy(re.sub(r"^\s*\w+\s*(?:=|->|→|\\to)\s*", "", str(request[key])))
        limits = self.settings.timeout_s, self.settings.memory_mb
        text = self._read(await self.sandbox.run(_PROGRAM, json.dumps(request), *limits))
        return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}... ({len(text) - _MAX_CHARS} characters cut)"

    def _read(self, execution: Execution) -> str:
        raise_if_not_run(execution, "tools.sympy.config.unsafe")
        if execution.status == ExecutionStatus.TIMEOUT:
            raise ToolTimeoutError(f"no result within {self.settings.timeout_s:g} s; try something simpler")
        if execution.status != ExecutionStatus.OK:
            raise ToolError("this cannot be computed here: it takes too much memory or does not end properly")
        try:
            answer = json.loads(execution.stdout)
        except ValueError:  # the output is not JSON, for example because the expression printed something
            answer = None
        if not isinstance(answer, dict):
            raise ToolError("this expression gives no result")
        if "error" in answer:
            raise ToolError(str(answer["error"]))
        return str(answer.get("text"))
