"""`run_tests`: runs the policy's program on the visible tests of its row, in the sandbox.

    tools:
      - name: run_tests
        config: {timeout_s: 5}

The row contains the tests as `extra_info.tools_kwargs.run_tests.create_kwargs.tests`, in a form that
`agent_rl.sandbox.read_cases` accepts. The policy sees which tests fail, its program's results and the expected results.
The tests that grade the answer are separate, and this tool never sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.sandbox import TOOL_CONCURRENCY, Case, CaseResult, FunctionCase, grade, read_cases, shared_sandbox
from agent_rl.settings.errors import Place
from agent_rl.tools.base import Tool
from agent_rl.tools.builtin.python import SandboxConfig, unfenced
from agent_rl.tools.truncation import shortened

_MAX_CHARS = 300  # maximum number of characters shown of an input or an expected value


class RunTestsConfig(SandboxConfig):
    """The entry's `config`."""

    timeout_s: float = Field(default=5.0, gt=0, le=300)
    """Time limit for one test, in seconds, excluding time spent waiting for a core."""
    total_timeout_s: float = Field(default=30.0, gt=0)
    """Total time limit for all tests in a call, in seconds, as if no other program were using the sandbox."""
    max_failures: int = Field(default=3, ge=1)
    """Maximum number of failed tests that the policy sees."""


class RunTests(Tool):
    """A stateless tool that runs the visible tests of one row."""

    name = "run_tests"
    Config = RunTestsConfig
    settings: RunTestsConfig
    idempotent = True
    max_concurrency = TOOL_CONCURRENCY
    timeout_s = 3600.0  # the limit includes the wait for free slots
    description = (
        "Run your program on the visible tests. You are shown which of them fail, what your program gave and what was "
        "expected. Other tests grade the answer."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole program"}},
        "required": ["code"],
    }

    async def start(self) -> None:
        """Read the row's tests, and get the worker's sandbox.

        Raises:
            ConfigError: the row has no tests, or they cannot be read.
        """
        place = Place("extra_info.tools_kwargs.run_tests.create_kwargs") / "tests"
        tests = self.create_kwargs.get("tests")
        if not tests:
            raise place.error(f"expected tests, got {tests!r}", "Write each row's visible tests under this key")
        with place.around():
            self.cases: Sequence[Case] = read_cases(tests)
        settings = self.settings
        self.sandbox = await shared_sandbox(packages=settings.packages, unsafe=settings.unsafe)

    async def call(self, arguments: dict[str, Any]) -> str:
        """Run the tests; return the number of passed tests and the first failures."""
        settings = self.settings
        report = await grade(
            unfenced(arguments["code"]),
            self.cases,
            sandbox=self.sandbox,
            timeout_s=settings.timeout_s,
            memory_mb=settings.memory_mb,
            total_timeout_s=settings.total_timeout_s,
        )
        failed = [_describe_failure(case, result) for case, result in zip(self.cases, report.cases, strict=True)
                  if not result.passed]  # fmt: skip
        lines = [f"{report.passed} of {report.total} tests passed.", *failed[: settings.max_failures]]
        if len(failed) > settings.max_failures:
            lines.append(f"({len(failed) - settings.max_failures} more)")
        return "\n".join(lines)


def _describe_failure(case: Case, result: CaseResult) -> str:
    if isinstance(case, FunctionCase):
        arguments = [*map(repr, case.args), *(f"{name}={value!r}" for name, value in case.kwargs.items())]
        call = f"{case.function}({', '.join(arguments)})"
    else:
        call = f"input {case.stdin!r}"
    return f"{shortened(call, _MAX_CHARS)}: {result.reason}; expected {shortened(repr(case.expected), _MAX_CHARS)}"
