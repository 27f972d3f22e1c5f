"""Converts programming problems with tests to rows: APPS and TACO, CodeContests, HumanEval, LeetCode, KodCode, MBPP.

    {"question": ..., "input_output": "{inputs, outputs, fn_name}", "starter_code": ...}      APPS, TACO
    {"description": ..., "public_tests": {"input": [...], "output": [...]}, ...}              CodeContests
    {"prompt": ..., "test": ..., "entry_point": ..., "canonical_solution": ...}               HumanEval
    {"problem_description": ..., "starter_code": ..., "test": ..., "prompt": ..., ...}        LeetCode
    {"question": ..., "test": "from solution import f ...", "solution": ...}                  KodCode
    {"text" or "prompt": ..., "test_list": ["assert ...", ...], "code": ...}                  MBPP

With `--visible N`, the `run_tests` tool gets the first N tests of a row (for CodeContests, those in the problem
statement), and the other tests grade the program.

The ground truth contains the tests in a form that the `code` scorer reads. A published solution is stored in
`extra_info.solution`, as a program that runs after the row's prefix. `data_preprocess/code_problems.py` omits rows
whose tests this solution fails or `stub` passes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from agent_rl.data.conversion import Hub, RawSet, json_of, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.errors import ConfigError

_WRITE = "Write the program in a ```python block."
_TRY = "Run the visible tests with the tool run_tests first, and repair the program until it passes them."


@makes_row
def to_row(example: Mapping[str, Any], visible: int | None = None) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples.

    Args:
        example: the columns of the example.
        visible: number of tests that the `run_tests` tool gets; if None, all tests grade the program, without a tool.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    read = next((read for column, read in _FORMS.items() if column in example), None)
    if read is None:
        problem = f"no known form has these columns: {', '.join(map(str, example))}"
        raise ConfigError("column question", problem, f"Use rows with one of the columns {', '.join(_FORMS)}")
    source, question, tests, solution = read(example)
    open_tests, hidden = (None, tests) if visible is None else _divide_tests(example, tests, visible)
    if isinstance(open_tests, list):
        question = question.replace("\n".join(tests), "\n".join(open_tests))
    info = {key: example[key] for key in ("task_id", "name", "tags") if example.get(key) is not None}
    if example.get("difficulty") is not None:
        info["level"] = example["difficulty"]
    return {
        "prompt": "\n\n".join([question.strip(), *([_TRY] if open_tests else []), _WRITE]),
        "question": question.strip(),
        "data_source": source,
        "ground_truth": hidden,
        "ability": "code",
        "tools_kwargs": {"run_tests": {"create_kwargs": {"tests": open_tests}}} if open_tests else None,
        "extra_info": info | ({"solution": solution} if isinstance(solution, str) and solution else {}),
    }


def stub(row: Mapping[str, Any]) -> str:
    """Return a program that solves nothing: the published solution with every function returning None, or `pass`."""
    try:
        tree = ast.parse(row["extra_info"].get("solution") or "")
    except (SyntaxError, ValueError):  # the solution may be for another version of Python
        return "pass"
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in functions:
        node.body = [ast.Return(ast.Constant(None))]
    return ast.unparse(ast.fix_missing_locations(tree)) if functions else "pass"


def _divide_tests(example: Mapping[str, Any], tests: Any, visible: int) -> tuple[Any, Any]:
    """Divide an example's tests into visible and hidden tests.

    Raises:
        ConfigError: the tests are not a list, or no test would be hidden.
    """
    if "public_tests" in example:
        visible = len((example["public_tests"] or {}).get("input") or ())
    total = len(tests["inputs"]) if "inputs" in tests else len(tests) if isinstance(tests, list) else 0
    if not 0 < visible < total:
        problem = f"cannot show {visible} of {total} separate tests and hide the rest"
        raise ConfigError("--visible", problem, "Remove such rows, or convert without --visible")
    if isinstance(tests, list):
        return tests[:visible], tests[visible:]
    first, rest = slice(None, visible), slice(visible, None)
    parts = [{key: tests[key][part] for key in ("inputs", "outputs")} for part in (first, rest)]
    name = {"fn_name": tests["fn_name"]} if "fn_name" in tests else {}
    return parts[0] | name, parts[1] | name


_Parts = tuple[str, str, Any, Any]
"""The data source, question, tests and solution of an example."""


def _apps(example: Mapping[str, Any]) -> _Parts:
    tests = json_of(example, "input_output")
    if not isinstance(tests, Mapping) or not tests.get("inputs"):
        raise ConfigError("column input_output", "there are no inputs", "Remove rows without tests")
    solutions = json_of(example, "solutions") if example.get("solutions") else []
    cases = {key: tests[key] for key in ("inputs", "outputs", "fn_name") if tests.get(key) is not None}
    source = "taco" if "expected_time_complexity" in example or "skill_types" in example else "apps"
    return source, _with_start(example, text_of(example, "question")), cases, solutions[0] if solutions else None


def _contests(example: Mapping[str, Any]) -> _Parts:
    tests: dict[str, list[str]] = {"inputs": [], "outputs": []}
    for name in ("public_tests", "private_tests", "generated_tests"):
        cases = example.get(name) or {}
        tests["inputs"] += cases.get("input") or ()
        tests["outputs"] += cases.get("output") or ()
    if not tests["inputs"]:
        raise ConfigError("column public_tests", "there are no tests", "Remove rows without tests")
    return "codecontests", text_of(example, "description"), tests, None


def _leetcode(example: Mapping[str, Any]) -> _Parts:
    tests = {name: text_of(example, name) for name in ("test", "entry_point", "prompt")}
    question = _with_start(example, text_of(example, "problem_description"))
    return "newfacade/LeetCodeDataset", question, tests, example.get("completion")


def _humaneval(example: Mapping[str, Any]) -> _Parts:
    tests = {name: text_of(example, name) for name in ("test", "entry_point", "prompt")}
    body = example.get("canonical_solution")
    solution = f"{tests['prompt']}{body}" if body else None
    question = f"Complete this function:\n\n```python\n{tests['prompt'].strip()}\n```"
    return "openai_humaneval", question, tests, solution


def _kodcode(example: Mapping[str, Any]) -> _Parts:
    tests, solution = {"pytest": text_of(example, "test")}, example.get("solution")
    return "KodCode/KodCode-V1", text_of(example, "question"), tests, solution


def _mbpp(example: Mapping[str, Any]) -> _Parts:
    tests = list(value_of(example, "test_list"))
    listing = "\n".join(tests)
    question = f"{text_of(example, 'text', 'prompt').strip()}\n\nIt has to pass:\n\n```python\n{listing}\n```"
    return "mbpp", question, tests, example.get("code")


_FORMS = {
    "problem_description": _leetcode,
    "canonical_solution": _humaneval,
    "public_tests": _contests,
    "test_list": _mbpp,
    "input_output": _apps,
    "test": _kodcode,
}
"""The reader for each form of example, by a column that identifies the form; earlier entries take precedence."""


def _with_start(example: Mapping[str, Any], question: str) -> str:
    start = example.get("starter_code")
    return f"{question.strip()}\n\nStart with:\n\n```python\n{start.rstrip()}\n```" if start else question


_HUB = {"test": Hub("newfacade/LeetCodeDataset", None, "test")}
_VISIBLE = {"type": int, "metavar": "N", "help": "Number of tests in each row for its run_tests tool"}
CODE = RawSet("code", to_row, _HUB, arguments={"--visible": _VISIBLE})
