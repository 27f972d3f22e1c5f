"""The visible tests of a row: what the policy is shown of them."""

import os
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, FatalError
from agent_rl.sandbox.host.places import Places
from agent_rl.tools import load_tools
from tests.tools import use

SHIPPED = Path(__file__).parents[3] / "tool_configs" / "run_tests.yaml"
DOUBLE = [f"assert double({n}) == {2 * n}" for n in range(5)]


def run(tests, *programs):
    turns = ([("run_tests", {"code": code})] for code in programs)
    kwargs = {"run_tests": {"create_kwargs": {"tests": tests}}}
    return [result.text for result in use.run(load_tools(SHIPPED), *turns, tools_kwargs=kwargs)]


def test_what_fails_is_shown_with_what_was_expected():
    right, fenced, wrong, broken = run(
        DOUBLE,
        "def double(x): return 2 * x",
        "```python\ndef double(x): return x + x\n```",
        "def double(x): return x + 1",
        "def double(x): return x +",
    )
    assert right == fenced == "5 of 5 tests passed."
    assert wrong.splitlines() == [
        "1 of 5 tests passed.",
        "double(0): wrong value: 1; expected 0",
        "double(2): wrong value: 3; expected 4",
        "double(3): wrong value: 4; expected 6",
        "(1 more)",
    ]
    assert broken.startswith("0 of 5 tests passed.\ndouble(0): error: SyntaxError")


def test_a_program_that_reads_and_prints():
    right, wrong = run({"inputs": ["3\n"], "outputs": ["6\n"]}, "print(2 * int(input()))", "print(5)")
    assert right == "1 of 1 tests passed."
    assert wrong == "0 of 1 tests passed.\ninput '3\\n': wrong output: '5\\n'; expected '6\\n'"


def test_the_tests_of_a_call_do_not_slow_each_other_down():
    """They have the grader's places: all at once, each would have a share of a core that is too small for its limit."""
    most = max(4, len(os.sched_getaffinity(0)))
    code = """
import os, time
n = int(input())
time.sleep(0.05)
print(n + 1)
"""
    seen = []
    take = Places.take

    def counted(places):
        taken = take(places)
        seen.append(len(places._taken))
        return taken

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Places, "take", counted)
        (text,) = run({"inputs": [f"{n}\n" for n in range(20)], "outputs": [f"{n + 1}\n" for n in range(20)]}, code)
    assert text == "20 of 20 tests passed."
    assert 1 < max(seen) <= most


@pytest.mark.parametrize(("tests", "message"), [(None, "expected tests, got None"), ([1], "tests")])
def test_a_row_without_tests_stops_the_run(tests, message):
    with pytest.raises((ConfigError, FatalError), match=message):
        run(tests, "pass")
