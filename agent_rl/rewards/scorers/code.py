"""Scores programs by their tests, in the sandbox of this machine: `agent_rl.sandbox.grade`.

The program is the last ```python block of the response, else the last block of any kind, else the whole text. The
ground truth has any form of `agent_rl.sandbox.read_cases`, such as those of APPS, TACO, CodeContests and LiveCodeBench
in verl's rows; also `{"assert_case": [...]}`, and asserts as lines of text.

Numbers in an output may be off by 10^-6. On a machine without isolation no program is run, and the answer is unscored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.sandbox import grade, read_cases, shared_sandbox
from agent_rl.sandbox.host.fusion import FusionServer, grade_remotely

__all__ = ["extract_code", "score_code", "score_code_all", "score_code_remotely"]

CASE_S = 5.0
"""Wall-clock seconds of one case."""
TOTAL_S = 60.0
"""Wall-clock seconds of all cases of one program."""
FLOAT_TOLERANCE = 1e-6
MAX_CODE_CHARS = 100_000
_PYTHON = ("python", "py", "python3")
_FENCE = re.compile(r"^[ \t]*```[ \t]*([A-Za-z0-9_+-]*)[ \t]*$", re.MULTILINE)


@built_in("code", "codecontests", "apps", "codeforces", "taco", "livecodebench*", "deepcoder*", "mbpp*", inline=True)
async def score_code(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The share of the tests that the program passes.

    Raises:
        UnscoredError: the tests cannot be read, or the sandbox failed.
    """
    return await _score(solution, ground_truth, all_or_nothing=False)


@built_in("code_all", inline=True)
async def score_code_all(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 when the program passes every test, else 0.0; the rest is not run after the first failure.

    Raises:
        UnscoredError: as `score_code`.
    """
    return await _score(solution, ground_truth, all_or_nothing=True)


async def score_code_remotely(solution: str, ground_truth: Any, server: FusionServer) -> float:
    """As `score_code`, on a Sandbox Fusion server.

    Raises:
        UnscoredError: the tests cannot be read, or the server failed.
    """
    tests, code = _tests(ground_truth), extract_code(solution)
    if not code:
        return 0.0
    report = await grade_remotely(code, tests, server, float_tolerance=FLOAT_TOLERANCE)
    return report.fraction


def extract_code(solution: str) -> str:
    """The program in a response; "" if there is none, or it is too long."""
    text = solution[-MAX_CODE_CHARS:]
    last: dict[bool, tuple[int, int]] = {}  # start and end of the last block, by whether its language is Python
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is not None and not fence[1]:
            last[opened[1].lower() in _PYTHON] = (opened.end(), fence.start())
            opened = None
        else:
            opened = fence
    if opened is not None:  # cut off before its end
        last[opened[1].lower() in _PYTHON] = (opened.end(), len(text))
    if last:
        start, end = last.get(True) or last[False]
        return text[start:end].strip("\n")
    return solution if len(solution) <= MAX_CODE_CHARS else ""


async def _score(solution: str, ground_truth: Any, *, all_or_nothing: bool) -> float:
    tests, code = _tests(ground_truth), extract_code(solution)
    if not code.strip():
        return 0.0
    report = await grade(
        code,
        tests,
        sandbox=await shared_sandbox(),
        timeout_s=CASE_S,
        total_timeout_s=TOTAL_S,
        stop_at_first_failure=all_or_nothing,
        float_tolerance=FLOAT_TOLERANCE,
    )
    return report.score(all_or_nothing=all_or_nothing)


def _tests(ground_truth: Any) -> Any:
    """The tests in a form of `read_cases`."""
    tests = as_data(ground_truth)
    if isinstance(tests, str):
        lines = [line for line in tests.splitlines() if line.strip()]
        try:
            tests = lines if lines and all(line.startswith("assert ") for line in lines) else json.loads(tests)
        except (ValueError, RecursionError):
            raise unusable(ground_truth, "a list of tests in JSON") from None
    if isinstance(tests, Mapping) and "assert_case" in tests:
        tests = tests["assert_case"]
    try:
        return read_cases(tests)
    except (ConfigError, TypeError, RecursionError) as error:
        raise unusable(ground_truth, f"a list of tests ({error})") from None
