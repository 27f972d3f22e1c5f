r"""`grade` finds out which of a problem's tests an untrusted program passes.

    report = await grade(code, {"inputs": ["1 2\n"], "outputs": ["3\n"]})
    report.fraction  # 1.0

Each case runs in a separate process, which gets the program and the case's input. The expected value stays outside the
program's process, so even a forged answer passes only if it is right. Exiting early, answering twice, or writing into
another process's stream does not pass a case, because an answer counts only if its process ran to the end.

Tests with few possible answers can be passed by guessing, and a policy that was trained on these tests may know their
answers.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.host.answers import longest_text, read_result, same_output, same_value
from agent_rl.sandbox.host.cases import Case, StdioCase, read_cases
from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.sandbox import PythonSandbox
from agent_rl.sandbox.host.shared import repeated_if_busy

_AT_ONCE = 64  # maximum number of concurrent cases of one program
_ROOM = 2  # allowed output bytes per expected byte; more than 1, because extra whitespace is allowed
_MAX_SHOWN = 200  # a reason quotes at most this many characters of a program's output


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        passed: whether the program returned the expected result and ended normally.
        status: how the program ended; None means that the program was not run.
        reason: why the case failed. The reason never contains the expected result, so the policy may read it.
        wall_s: number of seconds the program ran.
        own_s: `wall_s` without time spent waiting for a core.
    """

    passed: bool
    status: ExecutionStatus | None
    reason: str = ""
    wall_s: float = 0.0
    own_s: float = 0.0


@dataclass(frozen=True)
class GradeReport:
    """The outcomes of all cases, in the order of the tests."""

    cases: tuple[CaseResult, ...]

    @property
    def total(self) -> int:
        """Number of cases."""
        return len(self.cases)

    @property
    def passed(self) -> int:
        """Number of passed cases."""
        return sum(case.passed for case in self.cases)

    @property
    def fraction(self) -> float:
        """Share of passed cases, from 0 to 1."""
        return self.passed / self.total

    def score(self, *, all_or_nothing: bool = False) -> float:
        """Return `fraction`; with `all_or_nothing`, return 1 if every case passed, and 0 otherwise."""
        return float(self.passed == self.total) if all_or_nothing else self.fraction


async def grade(
    code: str,
    tests: Any,
    *,
    sandbox: PythonSandbox | None = None,
    timeout_s: float = 5.0,
    memory_mb: int = 512,
    total_timeout_s: float | None = None,
    stop_at_first_failure: bool = False,
    float_tolerance: float = 0.0,
) -> GradeReport:
    """Run `code` on each case.

    To call a function, the program runs as a module other than `__main__`, with the usual imports available. The
    function's return value is compared exactly (a bool is not a number, 1 equals 1.0, a tuple equals a list). A
    program's standard output is compared without whitespace at the ends of lines and empty lines at the end, and its
    exit code has to be 0.

    Args:
        code: the program.
        tests: the cases, in one of the forms that `read_cases` accepts.
        sandbox: sandbox that runs the program; None starts a new sandbox, which takes about a second. Pass `await
            shared_sandbox()` to grade many programs.
        timeout_s: time limit for one case, in seconds, excluding time spent waiting for a core.
        memory_mb: memory limit for one case, in MiB.
        total_timeout_s: time limit for all cases together, in seconds, as if no other program were running; cases that
            take longer fail.
        stop_at_first_failure: skip all cases after the first failure.
        float_tolerance: allowed difference of floats, and of numbers in an output, absolute and relative to the
            expected value.

    Raises:
        ConfigError: the tests cannot be read.
        UnscoredError: the program cannot be judged, because the sandbox failed or cannot run on this machine, or the
            machine was too busy in two attempts to tell if the program is too slow.
    """
    cases = read_cases(tests)
    limit_s = min(timeout_s, total_timeout_s or timeout_s)
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(PythonSandbox()) if sandbox is None else sandbox

        async def run_once(case: Case) -> Execution:
            if isinstance(case, StdioCase):
                room = _ROOM * len(case.expected.encode("utf-8", "surrogatepass"))
                return await box.run(code, case.stdin, limit_s, memory_mb, output_bytes=room)
            call = case.function, case.args, case.kwargs
            return await box.call(code, call, limit_s, memory_mb, output_bytes=longest_text(case.expected))

        async def run(case: Case) -> CaseResult:
            execution = await repeated_if_busy(lambda: run_once(case), limit_s)
            if execution.status in (ExecutionStatus.REFUSED, ExecutionStatus.UNAVAILABLE):
                problem = execution.stderr.strip() or execution.status.value
                raise UnscoredError(f"a program could not be graded: {problem}")
            reason = _failure(execution) or difference(case, execution.stdout, execution.value, float_tolerance)
            return CaseResult(not reason, execution.status, reason, execution.wall_s, execution.own_s)

        at_once = min(_AT_ONCE, box.max_concurrency)
        return await grade_in_order(
            run, cases, total_timeout_s, stop_at_first_failure=stop_at_first_failure, at_once=at_once
        )


async def grade_in_order(
    run: Callable[[Case], Awaitable[CaseResult]],
    cases: Sequence[Case],
    total_timeout_s: float | None = None,
    *,
    stop_at_first_failure: bool = False,
    at_once: int,
) -> GradeReport:
    """Run all cases concurrently with `run` and return their results, regardless of the order in which cases end.

    Args:
        run: function that runs one case.
        cases: the cases to run.
        total_timeout_s: see `grade`.
        stop_at_first_failure: see `grade`.
        at_once: maximum number of concurrent cases; the sandbox or the server may run fewer.
    """
    window = asyncio.Semaphore(at_once)

    async def run_in_window(case: Case) -> CaseResult:
        async with window:
            return await run(case)

    ends = [0.0] * at_once  # times at which each place would be free if no other program were running
    limit_s = math.inf if total_timeout_s is None else total_timeout_s
    too_late = CaseResult(False, None, f"not finished within {limit_s:g} s for all cases")
    tasks = [asyncio.ensure_future(run_in_window(case)) for case in cases]
    results: list[CaseResult] = []
    try:
        for task in tasks:
            result = too_late
            if ends[0] < limit_s:
                result = await task
                end_s = ends[0] + result.own_s
                heapq.heapreplace(ends, end_s)
                result = result if end_s <= limit_s else too_late
            results.append(result)
            if stop_at_first_failure and not results[-1].passed:
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    left = len(cases) - len(results)
    return GradeReport((*results, *[CaseResult(False, None, "not run: an earlier case was not passed")] * left))


def difference(case: Case, stdout: str, value: str | None, tolerance: float) -> str:
    """Return why a program's result differs from the expected result, or "" if the results are equal.

    Args:
        case: the case.
        stdout: the program's standard output.
        value: the function's return value, as JSON text; None means that the function did not return.
        tolerance: `float_tolerance` of `grade`.
    """
    if isinstance(case, StdioCase):
        is_same = same_output(stdout, case.expected, tolerance)
        return "" if is_same else f"wrong output: {_cut(repr(stdout))}"
    if value is None:
        return "the program ended before the function returned"
    choices = [case.expected]
    if case.or_element and isinstance(case.expected, list) and len(case.expected) == 1:
        choices += case.expected
    try:
        if len(value) <= longest_text(case.expected):
            got = read_result(value)
            if any(same_value(got, expected, tolerance) for expected in choices):
                return ""
    except ValueError as error:
        return f"the function's return value cannot be read: {_cut(str(error))}"
    return f"wrong value: {_cut(value)}"


def _failure(execution: Execution) -> str:
    """Return a one-line reason why a program failed, or "" if the program succeeded."""
    if execution.status == ExecutionStatus.OK:
        return ""
    lines = [line for line in execution.stderr.strip().splitlines() if line.strip()]
    last = lines[-1].removeprefix("sandbox: ") if lines else f"exit code {execution.exit_code}"
    return f"{execution.status.value}: {_cut(last)}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
