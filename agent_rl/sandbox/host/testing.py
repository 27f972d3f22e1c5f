"""`grade_by_tests` grades an untrusted program with tests written in Python.

Two jailed processes are connected by a socket: one runs the program, and the other runs the tests, which call the
program's names through stand-ins. Expected values never enter the program's process, and test results count only if the
tests' process ran to its end.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.grading import CaseResult, GradeReport
from agent_rl.sandbox.host.pool import LOST, Pool
from agent_rl.sandbox.host.process import Child
from agent_rl.sandbox.host.sandbox import PythonSandbox
from agent_rl.sandbox.host.shared import repeated_if_busy
from agent_rl.sandbox.host.supervisor import Lost, NotRun
from agent_rl.sandbox.jail.protocol import SERVE, TEST

_FAILED = (ExecutionStatus.TIMEOUT, ExecutionStatus.MEMORY, ExecutionStatus.OUTPUT_LIMIT, ExecutionStatus.KILLED)
_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class PythonTests:
    """The tests in a row of a data set.

    Attributes:
        tests: source code of the tests.
        prefix: source code that precedes the program and that the tests can use too.
        entry_point: argument of `check(candidate)`, such as `f` or `Solution().f`; "" if there is no `check`.
    """

    tests: str
    prefix: str = ""
    entry_point: str = ""


async def grade_by_tests(
    code: str,
    tests: PythonTests,
    *,
    sandbox: PythonSandbox,
    timeout_s: float = 5.0,
    memory_mb: int = 512,
    total_timeout_s: float = 60.0,
    stop_at_first_failure: bool = False,
) -> GradeReport:
    """Run all tests against a single run of `code`.

    Args:
        code: the program, without the prefix.
        tests: the tests.
        sandbox: sandbox that runs the program and the tests.
        timeout_s: limit on the CPU time of one call to the program, in seconds; if a call takes longer, all tests fail.
        memory_mb: memory limit for each of the two processes, in MiB.
        total_timeout_s: time limit for all tests together, in seconds, excluding time spent waiting for a core.
        stop_at_first_failure: skip all tests after the first failure.

    Raises:
        UnscoredError: a test needs an object that cannot be sent to the program, no test exists, the sandbox failed, or
            the machine was too busy in two attempts to tell if the program is too slow.
    """
    order = {**asdict(tests), "limit_s": timeout_s, "stop": stop_at_first_failure}
    program = "\n\n".join(part for part in (tests.prefix, code) if part)
    run = partial(_run, sandbox._open_pool(), program, order, total_timeout_s, memory_mb << 20)
    execution = await repeated_if_busy(run, total_timeout_s)
    if execution.status in _FAILED:
        return GradeReport((CaseResult(False, execution.status, "the tests were stopped", execution.wall_s),))
    if execution.status != ExecutionStatus.OK:
        raise UnscoredError(f"a program could not be graded: {execution.stderr.strip()[-300:]}")
    results = json.loads(execution.stdout)
    failed = [outcome == "failed" for outcome, _ in results]
    unknown = next(
        (reason for outcome, reason in results if outcome == "unknown"), None if results else "no test was found"
    )
    if unknown is not None and not (stop_at_first_failure and any(failed)):
        raise UnscoredError(f"the tests cannot be run: {unknown}")
    return GradeReport(tuple(CaseResult(outcome == "passed", execution.status, reason) for outcome, reason in results))


async def _run(pool: Pool, program: str, order: Mapping[str, Any], limit_s: float, memory_bytes: int) -> Execution:
    """Run the tests' process to its end, then kill the program's process."""
    text_of_order = json.dumps(order)
    async with pool.slots:
        children: list[Child] = []
        ends = [end.detach() for end in socket.socketpair()]
        try:
            for flags, text, kind in ((SERVE, program, program), (TEST, text_of_order, order["tests"])):
                source = text.encode("utf-8", "surrogatepass")
                zygote = await pool.get(pool.kind_for(kind))
                child = Child(pool, zygote, (flags, len(source), limit_s, memory_bytes), os.pipe, (ends.pop(),))
                children.append(child)
                child.room = _OUTPUT_BYTES
                child.feed(source, limit_s, last=True)
            return child.execution(await child.ended, limit_s)
        except NotRun as error:
            return error.execution
        except Lost:
            return LOST
        finally:
            for child in children:
                child.close()
            for end in ends:
                os.close(end)
