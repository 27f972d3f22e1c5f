"""Grading programs by tests: what passes, and what no cheat gains."""

import asyncio
import json

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.sandbox import (
    CaseResult,
    Execution,
    ExecutionStatus,
    FunctionCase,
    PythonSandbox,
    StdioCase,
    grade,
    repeated_if_busy,
)
from agent_rl.sandbox.host.grading import grade_in_order
from agent_rl.sandbox.host.supervisor import Zygote
from tests.support.busy import busy_core

pytestmark = pytest.mark.slow

ADD = "def add(a, b):\n    return a + b\n"
PRINT_SUM = "a, b = map(int, input().split())\nprint(a + b)\n"


@pytest.fixture
def run(box):
    """`grade` in the open sandbox."""
    return lambda code, tests, **options: box.do(
        grade(code, tests, sandbox=box.sandbox, **{"timeout_s": 20.0, **options})
    )


FORMS = [
    {"inputs": [[1, 2], [3, 4]], "outputs": [[3], 7], "fn_name": "add"},
    {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"], "fn_name": "add"},
    json.dumps({"inputs": [[1, 2], [3, 4]], "outputs": [3, 7], "fn_name": "add"}),
    [
        {"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "add"}},
        {"input": "3\n4", "output": "7", "testtype": "functional", "metadata": '{"func_name": "add"}'},
    ],
    [
        {"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]},
        {"entry_point": "add", "args": [3, 4], "expected_output": 7},
    ],
    [
        {"fn_name": "add", "args": [1, 2], "expected": 3},
        {"function": "add", "args": [3], "kwargs": {"b": 4}, "expected": 7},
    ],
    [FunctionCase("add", [1, 2], 3), FunctionCase("add", (), 7, {"a": 3, "b": 4})],
    ["assert add(1, 2) == 3", "assert add(a=3, b=4) == 7"],
]


@pytest.mark.parametrize("tests", FORMS, ids=range(len(FORMS)))
def test_every_form_of_a_function_case(run, tests):
    assert run(ADD, tests).fraction == 1
    assert [case.passed for case in run("def add(a, b):\n    return 3\n", tests).cases] == [True, False]


@pytest.mark.parametrize(
    "tests",
    [
        {"inputs": ["1 2\n", "3 4"], "outputs": ["3\n", "7"]},
        {"inputs": [["1 2"], ["3 4"]], "outputs": [["3"], ["7", ""]]},
        [{"input": "1 2", "output": "3", "testtype": "stdin"}, {"stdin": "3 4", "stdout": "7"}],
        [
            {"type": "stdin_stdout", "input": "1 2", "output": "3"},
            {"stdin": "3 4", "expected": "7\n\n"},
        ],
        [StdioCase("1 2", "3"), StdioCase("3 4", "7")],
    ],
)
def test_every_form_of_a_program_case(run, tests):
    assert run(PRINT_SUM, tests).fraction == 1
    assert [case.passed for case in run("print(3)", tests).cases] == [True, False]


def test_whole_numbers_as_keys_are_whole_numbers_again(run):
    tests = {"inputs": ['{"1": 2}'], "outputs": ['{"1": 3}'], "fn_name": "f"}
    assert run("def f(table):\n    return {1: table[1] + 1}\n", tests).fraction == 1


def test_a_method_of_solution_needs_no_imports(run):
    code = """
class Solution:
    def total(self, numbers: List[int]) -> int:
        return reduce(lambda a, b: a + b, numbers)
"""
    report = run(code, [FunctionCase("total", [[1, 2, 3]], 6), FunctionCase("missing", [], 1)])
    assert [case.passed for case in report.cases] == [True, False]
    assert report.cases[1].reason == "error: NameError: the program defines no function 'missing'"


def test_the_main_block_runs_for_programs_only(run):
    code = "def f():\n    return 1\nif __name__ == '__main__':\n    print(input())"
    assert run(code, [FunctionCase("f", [], 1), StdioCase("hello", "hello")]).fraction == 1


def test_every_case_has_a_fresh_process(run):
    code = """
import os
state = []
def f():
    state.append(1)
    open("left", "a").write("x")
    return [len(state), os.listdir(".")]
"""
    assert run(code, [FunctionCase("f", [], [1, ["left"]])] * 4).fraction == 1


def test_limits_are_failures_with_a_reason(run):
    tests = [FunctionCase("f", [kind], 1) for kind in ("time", "memory", "output", "fine")]
    code = """
def f(kind):
    if kind == "time":
        while True: pass
    if kind == "memory":
        bytearray(1 << 40)
    if kind == "output":
        while True: print("x" * 10000)
    return 1
"""
    report = run(code, tests, timeout_s=1.0)
    assert [case.status for case in report.cases][1:] == [
        ExecutionStatus.MEMORY,
        ExecutionStatus.OUTPUT_LIMIT,
        ExecutionStatus.OK,
    ]
    assert report.cases[0].status == ExecutionStatus.TIMEOUT
    assert "time limit of 1 s" in report.cases[0].reason
    assert (report.passed, report.total, report.fraction) == (1, 4, 0.25)
    assert (report.score(), report.score(all_or_nothing=True)) == (0.25, 0.0)


def test_the_first_failure_ends_it_at_the_same_case_always(run):
    tests = [FunctionCase("f", [number], 1) for number in (1, 0, 1, 1)]
    report = run("def f(x):\n    return x", tests, stop_at_first_failure=True)
    assert [case.passed for case in report.cases] == [True, False, False, False]
    assert report.cases[2].reason == "not run: an earlier case was not passed"
    assert run("def f(x):\n    return 1", tests, stop_at_first_failure=True).fraction == 1


def test_cases_after_the_total_limit_do_not_pass(run):
    code = "import time\ndef f(x):\n    time.sleep(x)\n    return 1"
    report = run(code, [FunctionCase("f", [0], 1), FunctionCase("f", [60], 1)], timeout_s=60.0, total_timeout_s=3.0)
    assert [case.passed for case in report.cases] == [True, False]
    assert report.cases[1].status is None
    assert "3 s for all cases" in report.cases[1].reason


def graded(seconds, total_s, places):
    """Which cases are passed that take so many seconds of their own, and a hundred by the clock."""

    async def run(own_s):
        return CaseResult(True, ExecutionStatus.OK, "", 100.0, own_s)

    report = asyncio.run(grade_in_order(run, seconds, total_s, at_once=places))
    return [case.passed for case in report.cases]


def test_the_total_limit_counts_what_a_program_takes_that_is_alone():
    assert graded([1.0] * 8, total_s=2.0, places=4) == [True] * 8
    assert graded([1.0] * 9, total_s=2.0, places=4) == [True] * 8 + [False]
    assert graded([1.0, 3.0, 0.5, 0.5], total_s=2.0, places=2) == [True, False, True, True]
    assert graded([9.0, 1.0], total_s=None, places=1) == [True, True]


def test_a_program_that_does_not_end_is_run_once_on_a_busy_machine(box, monkeypatch):
    forks, fork = [], Zygote.fork
    monkeypatch.setattr(Zygote, "fork", lambda *order: forks.append(order) or fork(*order))
    tests = [StdioCase("", "1"), FunctionCase("f", (), 1)]
    code = "import time\ndef f():\n    while True: pass\nif __name__ == '__main__': f()"
    with busy_core():
        report = box.do(grade(code, tests, sandbox=box.sandbox, timeout_s=0.3))
    assert [case.status for case in report.cases] == ["timeout", "timeout"]
    assert all(case.own_s >= 0.3 for case in report.cases)
    assert len(forks) == len(tests)


@pytest.mark.parametrize(("own_s", "runs", "status"), [((0.2, 1.0), 2, "timeout"), ((1.0,), 1, "timeout")])
def test_a_timeout_that_proves_nothing_is_repeated_once(own_s, runs, status):
    left = list(own_s)

    async def run():
        return Execution(ExecutionStatus.TIMEOUT, wall_s=9.0, own_s=left.pop(0))

    assert asyncio.run(repeated_if_busy(run, 1.0)).status == status
    assert len(own_s) - len(left) == runs
    left = [0.2, 0.3]
    with pytest.raises(UnscoredError, match=r"the machine is busy: .* got 0.3 of its 1 s"):
        asyncio.run(repeated_if_busy(run, 1.0))


def test_what_is_expected_may_be_larger_than_what_a_program_may_write(run):
    """The limits are there for the host's memory, and the host has the expected value in its own."""
    expected = "abcdefg\n" * 300_000
    assert run("print('abcdefg \\n' * 300_000)", [StdioCase("", expected)]).fraction == 1
    assert run("print('abcdefg \\n' * 900_000)", [StdioCase("", expected)]).cases[0].status == "output_limit"
    value = "x" * (5 << 20)
    assert run("def f(): return 'x' * (5 << 20)", [FunctionCase("f", (), value)]).fraction == 1
    assert run("def f(): return 'x' * (5 << 20)", [FunctionCase("f", (), "x")]).fraction == 0


async def test_a_machine_that_runs_nothing_scores_nothing(tmp_path):
    async with PythonSandbox(packages=(), scratch_dir=str(tmp_path / "missing")) as sandbox:
        with pytest.raises(UnscoredError, match="could not be graded"):
            await grade("print(1)", [StdioCase("", "1")], sandbox=sandbox)


def test_without_a_sandbox_one_is_opened():
    assert asyncio.run(grade(ADD, [FunctionCase("add", [1, 2], 3)])).fraction == 1
