"""Scores programs by their tests, in this machine's sandbox (`agent_rl.sandbox.grade`).

The program is the last ```python block of the response, else the last block of any kind, else the whole text. The
tests are the ground truth or, if that is empty, `extra_info["test_cases"]`. The tests have one of these forms:

- a form that `agent_rl.sandbox.read_cases` accepts, such as those of APPS, TACO, CodeContests and LiveCodeBench in
  verl's rows; also `{"assert_case": [...]}`, asserts as lines of text, and pairs `[input, output]`;
- Python tests with pytest's semantics (`agent_rl.sandbox.grade_by_tests`): a string, `{"functional": ...}`,
  `{"pytest": ...}`, or `{"test": ..., "entry_point": ..., "prompt": ...}` as in LeetCode and HumanEval. The prompt, or
  `extra_info["prefix"]`, is inserted before the program, and the tests may call functions from both; the entry point
  may also be in `extra_info`. Each assert in `check(candidate)` is a separate test.

Numbers with a decimal point or an exponent may differ by 10^-6. If the machine cannot isolate programs, or if a test
needs an object that cannot be sent to the program, such as a mock or a file, the answer is unscored.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.rewards.scorers.extraction import last_block
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.sandbox import (
    FunctionCase,
    PythonTests,
    StdioCase,
    grade,
    grade_by_tests,
    read_cases,
    shared_sandbox,
)
from agent_rl.sandbox.fusion import FusionServer, grade_remotely

SOURCES = ("codecontests", "apps", "codeforces", "taco", "livecodebench*", "deepcoder*", "mbpp*")
WHOLE_SOURCES = (
    "agent_rl/code",
    *("leetcode*", "*/LeetCode*", "kodcode*", "*/KodCode*", "humaneval*", "openai_humaneval", "*/humaneval*"),
)
"""Data sets in which a program must pass all tests, because a wrong program passes some of them by chance."""
PACKAGES = ("numpy", "sympy", "sortedcontainers", "pytest")
"""Packages that programs may import; judges of programming contests offer similar packages."""
CASE_S = 5.0
"""Time limit for each case in seconds, excluding the time spent waiting for a core."""
TOTAL_S = 60.0
"""Time limit for all of a program's cases together in seconds, as if no other program were running on the node."""
FLOAT_TOLERANCE = 1e-6
MAX_CODE_CHARS = 100_000
_Tests = tuple[Sequence[FunctionCase | StdioCase] | PythonTests, str]
_FUNCTION_KEYS = ("entry_point", "fn_name", "function")
_TEXT_KEYS = ("test", "functional", "pytest", "test_code")
_BEFORE_KEYS = ("prompt", "prefix", "import_prefix")
_DEFINED = re.compile(r"^(?:def (?:check|test)|class Test|from solution import)", re.MULTILINE)


@built_in("code", *WHOLE_SOURCES, all_or_nothing=True)
@built_in("code", *SOURCES, inline=True)
async def score_code(
    solution: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    all_or_nothing: bool = False,
    server: FusionServer | None = None,
) -> float:
    """The share of the tests that the program passes; with `all_or_nothing: true`, a share below 1.0 becomes 0.0.

    Args:
        solution: the response.
        ground_truth: the row's tests.
        extra_info: the row's `extra_info`.
        all_or_nothing: whether a share below 1.0 becomes 0.0; if so, no test runs after the first failure.
        server: the server that runs cases; if None, this machine runs them. Python tests always run on this machine.

    Raises:
        UnscoredError: the tests cannot be read, or the sandbox or the server failed.
    """
    (tests, before), code = _tests(ground_truth, extra_info), extract_code(solution)
    if not code.strip():
        return 0.0
    program = f"{before}\n\n{code}" if before else code
    if server is not None and not isinstance(tests, PythonTests):
        report = await grade_remotely(program, tests, server, float_tolerance=FLOAT_TOLERANCE)
        return report.score(all_or_nothing=all_or_nothing)
    options: dict[str, Any] = {
        "sandbox": await shared_sandbox(packages=PACKAGES),
        "timeout_s": CASE_S,
        "total_timeout_s": TOTAL_S,
        "stop_at_first_failure": all_or_nothing,
    }
    if isinstance(tests, PythonTests):
        report = await grade_by_tests(program, tests, **options)
    else:
        report = await grade(program, tests, float_tolerance=FLOAT_TOLERANCE, **options)
    return report.score(all_or_nothing=all_or_nothing)


def extract_code(solution: str) -> str:
    """Extract the program from a response; "" if the program is missing or too long."""
    block = last_block(solution[-MAX_CODE_CHARS:], "python", "py", "python3")
    if block is not None:
        return block
    return solution if len(solution) <= MAX_CODE_CHARS else ""


def _tests(ground_truth: Any, extra_info: Mapping[str, Any]) -> _Tests:
    """Return the tests of a row, and the code to insert before the program when cases are run."""
    tests = as_data(ground_truth)
    if tests is None or (isinstance(tests, str | list | dict) and not tests):
        tests = as_data(extra_info.get("test_cases"))
    try:
        return _read(tests, _text(extra_info, *_FUNCTION_KEYS), _text(extra_info, "prefix") or "")
    except (ConfigError, TypeError, ValueError, RecursionError) as error:
        raise unusable(ground_truth, f"a list of tests ({error})") from None


def _read(tests: Any, function: str | None, prefix: str) -> _Tests:
    if isinstance(tests, str):
        lines = [line for line in tests.splitlines() if line.strip()]
        if lines and all(line.startswith("assert ") for line in lines):
            tests = lines
        elif _DEFINED.search(tests):
            return _python(tests, function, prefix)
        else:
            tests = json.loads(tests)
    if isinstance(tests, Mapping):
        text = _text(tests, *_TEXT_KEYS)
        if text is not None:
            return _python(text, _text(tests, "entry_point") or function, _text(tests, *_BEFORE_KEYS) or prefix)
        tests = tests.get("assert_case", tests)
    if isinstance(tests, Sequence) and not isinstance(tests, str) and tests:
        tests = [_from_pair(as_data(test), function) for test in tests]
    return read_cases(tests, function), prefix


def _python(text: str, function: str | None, before: str) -> _Tests:
    compile(text, "tests", "exec", ast.PyCF_ONLY_AST)
    return PythonTests(text, before, function or ""), ""


def _from_pair(test: Any, function: str | None) -> Any:
    """Convert `[input, output]` to a mapping; if there is no function, encode non-string, non-list values as JSON."""
    pair = isinstance(test, Sequence) and not isinstance(test, str) and len(test) == 2
    case = {"input": test[0], "output": test[1]} if pair else test
    if not isinstance(case, Mapping) or case.keys() != {"input", "output"}:
        return case
    if function is not None:
        return {**case, "testtype": "functional"}
    return {key: value if isinstance(value, str | list) else json.dumps(value) for key, value in case.items()}


def _text(mapping: Mapping[str, Any], *keys: str) -> str | None:
    """Return the first non-empty string among the values of these keys, or None."""
    values = (mapping.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value), None)
