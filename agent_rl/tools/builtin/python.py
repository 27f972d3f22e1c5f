"""`python`: a code interpreter; the policy's code runs in the sandbox, never in the worker.

    tools:
      - name: python
        config: {mode: session, timeout_s: 10, packages: [numpy, sympy]}

In `session` mode, variables survive between the calls of a trajectory, as in a notebook; in `stateless` mode,
each call is a separate program. Trajectories share nothing in either mode. `timeout_s` and `memory_mb` limit one call;
the entry's `max_concurrency` limits concurrent calls in a worker process (default: the number of cores).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from agent_rl.errors import ToolError, ToolTimeoutError
from agent_rl.sandbox import (
    TOOL_CONCURRENCY,
    UNBOUNDED,
    Execution,
    ExecutionStatus,
    PythonSandbox,
    SandboxSession,
    raise_if_not_run,
    shared_sandbox,
)
from agent_rl.settings.errors import validated
from agent_rl.tools.base import Tool, ToolConfig
from agent_rl.tools.truncation import shortened

_MAX_ERROR_CHARS = 2000  # maximum number of characters shown of standard error
_FENCED = re.compile(r"```[ \t]*[\w+-]*[ \t\r]*\n(.*?)(?:```|\Z)", re.DOTALL)
_LIBRARY_FRAME = re.compile(r'^  File "(?!<).*\n(?:    .*\n|  \[.*\n)*', re.MULTILINE)
_REMARK = "sandbox: "
_LOST = f"{_REMARK}the previous state was lost: "


class SandboxConfig(ToolConfig):
    """The part of the entry's `config` that determines how the policy's code runs."""

    memory_mb: int = Field(default=512, ge=16)
    """Memory limit in MiB of one process, which runs a trajectory's interpreter or one test."""
    packages: tuple[str, ...] = ("numpy", "sympy")
    """Installed packages that the code may import, in addition to the standard library."""
    unsafe: bool = False
    """Whether to run code even if the machine offers no isolation."""


class PythonConfig(SandboxConfig):
    """The entry's `config`."""

    mode: Literal["session", "stateless"] = "session"
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Time limit for the code of one call, in seconds, excluding time spent waiting for a core."""


class Python(Tool):
    """One trajectory's interpreter."""

    name = "python"
    Config = PythonConfig
    settings: PythonConfig
    description = (
        "Run Python code. What it prints is shown, and the value of a final expression, as in a notebook. "
        "No network, no other programs, no files but its own."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "For example: sum(n * n for n in range(10))"}},
        "required": ["code"],
    }
    timeout_s = 600.0
    max_concurrency = TOOL_CONCURRENCY
    session: SandboxSession | None = None

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for unknown keys, values out of range, and packages that are not installed."""
        PythonSandbox(packages=validated(PythonConfig, config).packages)

    async def start(self) -> None:
        """Get the worker's sandbox; a session's process starts with the first call."""
        settings = self.settings
        self.sandbox = await shared_sandbox(
            packages=settings.packages, max_concurrency=UNBOUNDED, unsafe=settings.unsafe
        )
        if settings.mode == "session":
            self.session = self.sandbox.session(settings.timeout_s, settings.memory_mb)
            await self.session.__aenter__()

    async def call(self, arguments: dict[str, Any]) -> str:
        """Run the code; return its output and the value of its final expression."""
        code = unfenced(arguments["code"])
        if self.session is not None:
            execution = await self.session.run(code, show_last=True)
        else:
            limits = self.settings.timeout_s, self.settings.memory_mb
            execution = await self.sandbox.run(code, "", *limits, show_last=True)
        raise_if_not_run(execution, "tools.python.config.unsafe")
        errors = _Errors(execution.stderr)
        if execution.status == ExecutionStatus.OK:
            text = "\n".join(part for part in (execution.stdout.rstrip(), errors.text) if part)
            return errors.lost + (text or "(no output: print what you want to see)")
        raise self._failure(execution, errors)

    async def close(self) -> None:
        """Stop the session's process."""
        if self.session is not None:
            await self.session.__aexit__()

    def _failure(self, execution: Execution, errors: _Errors) -> ToolError | ToolTimeoutError:
        """Return the error for a failed program: what happened, what the program printed, and where it failed."""
        what, where = errors.exception or (f"the code ended with exit code {execution.exit_code}", errors.text)
        limits = {
            ExecutionStatus.TIMEOUT: f"the code was stopped: it did not finish within {self.settings.timeout_s:g} s",
            ExecutionStatus.OUTPUT_LIMIT: "the code was stopped: it printed too much",
            ExecutionStatus.MEMORY: f"MemoryError: the code needs more than {self.settings.memory_mb} MiB",
        }
        parts = [errors.lost + (limits.get(execution.status) or errors.remark or what)]
        if errors.remark and self.session is not None:  # a remark means that the sandbox stopped the process
            parts.append("All variables are lost; define them again.")
        if execution.stdout.strip():
            parts.append(f"Output until then:\n{shortened(execution.stdout.rstrip(), _MAX_ERROR_CHARS)}")
        if where:
            parts.append(where)
        kind = ToolTimeoutError if execution.status == ExecutionStatus.TIMEOUT else ToolError
        return kind("\n".join(parts))


class _Errors:
    """Standard error, split into its parts.

    Attributes:
        lost: sentence about variables that were lost before this call, or "".
        remark: the sandbox's reason for stopping the program, or "".
        text: the program's own error output, without traceback frames of library code.
    """

    def __init__(self, stderr: str) -> None:
        self.lost = self.remark = ""
        if stderr.startswith(_LOST):
            why, _, stderr = stderr.removeprefix(_LOST).partition("\n")
            self.lost = f"(The variables of earlier calls were lost: {why}.)\n"
        text = _LIBRARY_FRAME.sub("", stderr).replace("Traceback (most recent call last):\n", "").rstrip()
        before, _, last = text.rpartition("\n")
        if last.startswith(_REMARK):
            self.remark, text = last.removeprefix(_REMARK), before
        self.text = text if len(text) <= _MAX_ERROR_CHARS else f"...{text[-_MAX_ERROR_CHARS:]}"

    @property
    def exception(self) -> tuple[str, str] | None:
        """The text of the exception that ended the program, and the lines above it; None if there was no exception."""
        lines = self.text.split("\n")
        above = max((number for number, line in enumerate(lines, 1) if line.startswith("  ")), default=0)
        if '  File "<' not in self.text or above == len(lines):
            is_bare = re.match(r"\w+(Error|Exception|Interrupt)\b", lines[-1])  # raised outside the policy's code
            return (lines[-1], "\n".join(lines[:-1])) if is_bare else None
        return "\n".join(lines[above:]), "\n".join(lines[:above])


def unfenced(code: str) -> str:
    """Remove the Markdown fences that models often put around code."""
    if not code.lstrip().startswith("```"):
        return code
    return "\n".join(_FENCED.findall(code)) or code
