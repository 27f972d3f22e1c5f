"""The code interpreter: what the policy reads, what survives between calls, and what does not."""

import pytest

from agent_rl.tools.builtin.python import Python, unfenced
from agent_rl.tools.spec import ToolSpec
from agent_rl.trajectory import ToolStatus

PATIENT = {"timeout_s": 30}


def configured(**config):
    Python.check_config(config)
    return [ToolSpec.from_class(Python, config=config)]


@pytest.fixture
def python(one_trajectory):
    """Results of cells of one trajectory."""

    def python(*cells, **config):
        return one_trajectory(configured(**{**PATIENT, **config}), *({"code": cell} for cell in cells))

    return python


def test_variables_survive_and_the_last_value_is_shown(python):
    results = python("x = 20\nprint('hello')\nx + 1", "```python\nx *= 2\n```", "x", "'text'")
    assert [result.text for result in results] == [
        "hello\n21",
        "(no output: print what you want to see)",
        "40",
        "'text'",
    ]
    assert {result.status for result in results} == {ToolStatus.OK}


def test_stateless_calls_share_nothing(python):
    results = python("x = 1\nx", "x", mode="stateless")
    assert [result.status for result in results] == [ToolStatus.OK, ToolStatus.ERROR]
    assert results[1].text.startswith("Error: NameError: name 'x' is not defined\n")


def test_trajectories_share_nothing(python):
    python("import builtins\nbuiltins.leak = 1\nopen('left', 'w').close()")
    (result,) = python("import builtins, os\nhasattr(builtins, 'leak'), os.listdir('.')")
    assert result.text == "(False, [])"


def test_packages_can_be_used(python):
    results = python(
        "import numpy as np\nnp.arange(3).tolist()", "import sympy\nsympy.factorint(12)", "import pydantic"
    )
    assert [result.text for result in results[:2]] == ["[0, 1, 2]", "{2: 2, 3: 1}"]
    assert results[2].text.startswith("Error: ModuleNotFoundError: No module named 'pydantic'")


def test_an_exception_comes_first_then_the_output_then_the_place(python):
    (result,) = python("def f(n):\n    return 1 / n\n\nprint('before')\nf(0)")
    assert result.status == ToolStatus.ERROR
    lines = [line for line in result.text.splitlines() if "~" not in line and "^" not in line]
    assert lines == [
        "Error: ZeroDivisionError: division by zero",
        "Output until then:",
        "before",
        '  File "<cell 1>", line 5, in <module>',
        "    f(0)",
        '  File "<cell 1>", line 2, in f',
        "    return 1 / n",
    ]


@pytest.mark.parametrize(
    ("code", "first", "hidden"),
    [
        ("f(x", "Error: SyntaxError: '(' was never closed", "Traceback"),
        ("import json\njson.loads('{')", "Error: json.decoder.JSONDecodeError: ", "decoder.py"),
        ("raise ValueError('a\\nb')", "Error: ValueError: a\nb\n", "Traceback"),
        ("input()", "Error: EOFError: EOF when reading a line", "Traceback"),
        ("import sys\nprint('why', file=sys.stderr)\nsys.exit(3)", "Error: the code ended with exit code 3", "File"),
        ("x = bytearray(1 << 40)", "Error: MemoryError: the code needs more than 512 MiB", "Traceback"),
        ("import os\nos._exit(0)", "Error: the program ended the session's process\nAll variables are lost", "sandbox"),
        ("open('/etc/passwd')", "Error: PermissionError", "Traceback"),
    ],
)
def test_failures_are_short_and_say_what_happened(python, code, first, hidden):
    (result,) = python(code)
    assert result.status == ToolStatus.ERROR
    assert result.text.startswith(first)
    assert hidden not in result.text


def test_what_goes_to_standard_error_is_shown_too(python):
    (result,) = python("import sys\nprint('note', file=sys.stderr)\n1")
    assert (result.status, result.text) == (ToolStatus.OK, "1\nnote")
    (result,) = python("import sys\nsys.exit(0)")
    assert result.status == ToolStatus.OK


def test_a_timeout_says_so_and_that_the_variables_are_lost(python):
    results = python("x = 1", "print('before')\nwhile True: pass", "x", "2", timeout_s=2.0)
    assert results[1].status == ToolStatus.TIMEOUT
    assert results[1].text == (
        "Error: the code was stopped: it did not finish within 2 s\n"
        "All variables are lost; define them again.\nOutput until then:\nbefore"
    )
    assert results[2].text.startswith("Error: (The variables of earlier calls were lost: ")
    assert "NameError: name 'x' is not defined" in results[2].text
    assert results[3].text == "2"


def test_too_much_output_is_cut(python):
    (result,) = python("while True: print('x' * 1000)")
    assert result.status == ToolStatus.ERROR
    assert result.text.startswith("Error: the code was stopped: it printed too much\nAll variables are lost")
    assert len(result.text) < 3000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = '```'", "x = '```'"),
        ("```python\nx\n```", "x\n"),
        ("\n```\nx\n```\n", "x\n"),
        ("```py\nx", "x"),
        ("``` python\nx\n```", "x\n"),
        ("```python\r\nx\r\n```", "x\r\n"),
        ("```python\na = 1\n```\nand then\n```python\na\n```", "a = 1\n\na\n"),
        ("```", "```"),
    ],
)
def test_markdown_fences_are_taken_off(code, expected):
    assert unfenced(code) == expected
