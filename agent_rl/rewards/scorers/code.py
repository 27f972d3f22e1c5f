"""Scores programs by their tests, in the sandbox of this machine: `agent_rl.sandbox.grade`.

The program is the last ```python block of the response, else the last block of any kind, else the whole text. The
ground truth has one of these forms; where it is null, they are looked for in `extra_info["test_cases"]`:

- any form of `agent_rl.sandbox.read_cases`, such as those of APPS, TACO, CodeContests and LiveCodeBench in verl's rows;
  also `{"assert_case": [...]}`, asserts as lines of text, and pairs `[input, output]`;
- tests as Python, with pytest's semantics (`agent_rl.sandbox.grade_by_tests`): a text, or
  `{"test": ..., "entry_point": ..., "prompt": ...}` as LeetCode and HumanEval have it, `{"functional": ...}`,
  `{"pytest": ...}`. The prompt, or `extra_info["prefix"]`, is put before the program, and the tests use its functions;
  an entry point may also stand in `extra_info`. Each assert of `check(candidate)` counts as a test.

Numbers with a point or an exponent may be off by 10^-6. On a machine without isolation no program is run, and the
answer is unscored; so it is where a test needs what cannot be sent to the program, such as a mock or a file.
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

__all__ = ["extract_code", "score_code"]

SOURCES = ("codecontests", "apps", "codeforces", "taco", "livecodebench*", "deepcoder*", "mbpp*")
WHOLE_SOURCES = (
    "agent_rl/code",
    *("leetcode*", "*/LeetCode*", "kodcode*", "*/KodCode*", "humaneval*", "openai_humaneval", "*/humaneval*"),
)
"""Data sets whose tests belong together, as in their own scores: a wrong function passes some of them by chance."""
PACKAGES = ("numpy", "sympy", "sortedcontainers", "pytest")
"""What programs may import, as at the judges of programming contests."""
CASE_S = 5.0
"""Seconds of one case, those of waiting for a core not counted."""
TOTAL_S = 60.0
"""Seconds of all cases of one program, as if it had all places of the node to itself."""
FLOAT_TOLERANCE = 1e-6
MAX_CODE_CHARS = 100_000
_ALL_TEXT = "1.0 when the program passes every test, else 0.0; the rest is not run after the first failure."
_Tests = tuple[Sequence[FunctionCase | StdioCase] | PythonTests, str]
_FUNCTION_KEYS = ("entry_point", "fn_name", "function")
_TEXT_KEYS = ("test", "functional", "pytest", "test_code")
_BEFORE_KEYS = ("prompt", "prefix", "import_prefix")
_DEFINED = re.compile(r"^(?:def (?:check|test)|class Test|from solution import)", re.MULTILINE)


@built_in("code_all", *WHOLE_SOURCES, inline=True, all_or_nothing=True, text=_ALL_TEXT)
@built_in("code", *SOURCES, inline=True)
async def score_code(
    solution: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    all_or_nothing: bool = False,
    server: FusionServer | None = None,
) -> float:
    """The share of the tests that the program passes.

    Args:
        solution: the response.
        ground_truth: the tests of the row.
        extra_info: of the row.
        all_or_nothing: whether a share below 1.0 is 0.0 (`code_all`); no test is run after the first failure.
        server: where cases are run; None: on this machine, as tests that are Python always are.

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
    """The program in a response; "" if there is none, or it is too long."""
    block = last_block(solution[-MAX_CODE_CHARS:], "python", "py", "python3")
    if block is not None:
        return block
    return solution if len(solution) <= MAX_CODE_CHARS else ""


def _tests(ground_truth: Any, extra_info: Mapping[str, Any]) -> _Tests:
    """The tests of a row, and what is put before the program to run cases."""
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
    """`[input, output]` as a mapping; values of a program that reads and prints are written as text."""
    pair = isinstance(test, Sequence) and not isinstance(test, str) and len(test) == 2
    made = {"input": test[0], "output": test[1]} if pair else test
    if not isinstance(made, Mapping) or made.keys() != {"input", "output"}:
        return made
    if function is not None:
        return {**made, "testtype": "functional"}
    return {key: value if isinstance(value, str | list) else json.dumps(value) for key, value in made.items()}


def _text(mapping: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these values that is a text, and not empty."""
    values = (mapping.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value), None)
