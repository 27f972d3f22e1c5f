"""The forms in which data sets write tests, and what is said of those that cannot be read."""

import numpy as np
import pytest

from agent_rl.errors import ConfigError
from agent_rl.sandbox import FunctionCase, StdioCase, read_cases


def test_a_function_for_cases_that_name_none():
    (case,) = read_cases([{"input": "[1]\n2", "output": "null", "testtype": "functional"}], function="f")
    assert case == FunctionCase("f", [[1], 2], None)


def test_a_line_of_arguments_may_contain_unicode_line_separators():
    (case,) = read_cases([{"input": '"a\u2028b\x85"\r\n2', "output": "null", "fn_name": "f", "testtype": "functional"}])
    assert case.args == ["a\u2028b\x85", 2]


@pytest.mark.parametrize("key", ["fn_name", "function", "func_name", "entry_point"])
def test_columns_name_their_function_with_the_keys_of_cases(key):
    (case,) = read_cases({"inputs": [[1]], "outputs": [2], key: "f"})
    assert (case.function, case.args, case.expected) == ("f", [1], 2)


def test_null_columns_count_as_absent():
    blank = {"fn_name": None, "args": None, "kwargs": None, "expected": None, "stdin": None}
    assert read_cases([{**blank, "stdin": "1", "expected": "2"}, {**blank, "fn_name": "f", "args": [1]}]) == [
        StdioCase("1", "2"),
        FunctionCase("f", [1], None),
    ]
    assert read_cases([{"input": "1", "output": "2", "metadata": "null"}]) == [StdioCase("1", "2")]
    assert read_cases([{"input": "1", "output": "2", "fn_name": "f"}]) == [FunctionCase("f", [1], 2)]


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([], "the list is empty"),
        (3, r"tests: expected a list, or a mapping with inputs and outputs, got int 3.*Known forms"),
        ("check(add)", "expected JSON text, got"),
        ({"inputs": ["1"], "outputs": []}, "not two lists of the same length"),
        ({"inputs": "1\n", "outputs": "2\n"}, "not two lists of the same length"),
        ({"inputs": [1], "outputs": ["1"]}, r"tests.inputs\[0\].input: expected text or a list of lines, got int 1"),
        ({"inputs": ["1 2"], "outputs": ["1"], "fn_name": "f"}, r"inputs\[0\]: expected JSON text, got '1 2'"),
        ([{"input": "1", "output": "1"}, {"input": "1"}], r"tests\[1\]: the case has neither expected nor output"),
        ([{"input": "1", "output": "1", "testtype": "functional"}], "needs a function's name"),
        ([{"input": "1", "output": "1", "testtype": "file"}], r"testtype: expected one of stdin, .*, got 'file'"),
        ([{"args": [1], "expected": 1}], "args needs a function's name"),
        ([{"fn_name": "f", "args": 1, "expected": 1}], r"args: expected a list, got int 1"),
        ([{"fn_name": "f(", "args": [], "expected": 1}], "is not a function's name"),
        ([{"fn_name": "f", "args": [object], "expected": 1}], "expected only plain values"),
        ([{"fn_name": "f", "args": [{"x": np.int64(1)}], "expected": 1}], "expected only plain values, got .*int64"),
        ([{"fn_name": "f", "args": [], "expected": {1, 2}}], "a set cannot be compared"),
        ([{"inptu": "1", "output": "1"}], r"tests\[0\].inptu: unknown key. Did you mean 'input'"),
        (["assert f(1) == 2", "assert set(f(1)) == {2}"], r"tests\[1\]: .* running it shows the value to the program"),
        (["assert f(g(1)) == 2"], "running it shows the value"),
        (["assert f(1) == 2 or True"], "running it shows the value"),
        (["assert f(*[1]) == 2"], "running it shows the value"),
    ],
)
def test_tests_that_cannot_be_read_say_what_was_expected(tests, expected):
    with pytest.raises(ConfigError, match=expected):
        read_cases(tests)
