r"""`grade`: which of a problem's tests an untrusted program passes.

    report = await grade(code, {"inputs": ["1 2\n"], "outputs": ["3\n"]})
    report.fraction  # 1.0

Each case runs in a process of its own that is given the program and the case's input. What is expected stays here: a
program can forge whatever it says about itself, but a forged answer has to be the right one. Leaving early, answering
twice, or writing into someone else's stream is not passing, because an answer counts only from a process that went on
to the end of its run.

What this does not promise: tests with few possible answers can be passed by guessing, and nothing stops a program that
was trained on these tests from knowing their answers.
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

__all__ = ["CaseResult", "GradeReport", "difference", "grade", "grade_in_order"]

_AT_ONCE = 64  # cases of one program
_ROOM = 2  # bytes that a program may write for one that is expected: white space is ignored
_MAX_SHOWN = 200  # characters of what a program wrote that go into a reason


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        passed: whether the program gave what was expected, and ended well.
        status: how the program ended on it; None: it was not run.
        reason: why it was not passed. What was expected is never in it, so the policy may read it.
        wall_s: seconds that the program ran.
        own_s: the same without those of waiting for a core.
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
        """Number of cases that were passed."""
        return sum(case.passed for case in self.cases)

    @property
    def fraction(self) -> float:
        """Share of the cases that were passed, 0 to 1."""
        return self.passed / self.total

    def score(self, *, all_or_nothing: bool = False) -> float:
        """`fraction`, or 1 only when every case was passed."""
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

    A function is called after the program ran under another name than `__main__`, with the usual imports made for it.
    Its value is compared exactly (a bool is no number, 1 equals 1.0, a tuple equals a list). A program's standard
    output is compared without white space at the ends of lines and empty lines at the end, and its exit code has to
    be 0.

    Args:
        code: the program.
        tests: in one of the forms of `read_cases`.
        sandbox: where to run it; None: one is opened for this call, which takes about a second;
            pass `await shared_sandbox()` where many programs are graded.
        timeout_s: seconds for one case, those of waiting for a core not counted.
        memory_mb: MiB for one case.
        total_timeout_s: seconds for all, as if the program had all places to itself; cases that would not have ended by
            then are not passed.
        stop_at_first_failure: give up all cases after the first that is not passed.
        float_tolerance: how far floats, and words of an output that are numbers, may be off, absolutely and relative to
            what is expected.

    Raises:
        ConfigError: the tests cannot be read.
        UnscoredError: the sandbox failed, runs nothing on this machine, or was twice too busy to say whether the
            program is too slow: nothing can be said about the program.
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
    """The results of `run` for all cases, which run at the same time, independent of the order in which they end.

    Args:
        run: runs one case.
        cases: what to run.
        total_timeout_s: as for `grade`.
        stop_at_first_failure: as for `grade`.
        at_once: cases that run at a time, if nothing else does; how many do is decided where they run.
    """
    window = asyncio.Semaphore(at_once)

    async def one(case: Case) -> CaseResult:
        async with window:
            return await run(case)

    ends = [0.0] * at_once  # when each place would be free, if this program had them to itself
    limit_s = math.inf if total_timeout_s is None else total_timeout_s
    too_late = CaseResult(False, None, f"not ended within {limit_s:g} s for all cases")
    tasks = [asyncio.ensure_future(one(case)) for case in cases]
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
    return GradeReport((*results, *[CaseResult(False, None, "not run: a case before was not passed")] * left))


def difference(case: Case, stdout: str, value: str | None, tolerance: float) -> str:
    """Why a program's result is not the expected one; "" when it is.

    Args:
        case: what was run.
        stdout: what the program wrote.
        value: what the function returned, as JSON text; None: it has not returned.
        tolerance: as `float_tolerance` of `grade`.
    """
    if isinstance(case, StdioCase):
        same = same_output(stdout, case.expected, tolerance)
        return "" if same else f"wrong output: {_cut(repr(stdout))}"
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
        return f"what the function returned cannot be read: {_cut(str(error))}"
    return f"wrong value: {_cut(value)}"


def _failure(execution: Execution) -> str:
    """Why a program did not end properly, in one line."""
    if execution.status == ExecutionStatus.OK:
        return ""
    lines = [line for line in execution.stderr.strip().splitlines() if line.strip()]
    last = lines[-1].removeprefix("sandbox: ") if lines else f"exit code {execution.exit_code}"
    return f"{execution.status.value}: {_cut(last)}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
