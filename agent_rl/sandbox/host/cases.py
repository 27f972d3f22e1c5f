"""The forms in which data sets write tests, read into `FunctionCase` and `StdioCase`. Nothing here runs a program."""

from __future__ import annotations

import ast
import json
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.sandbox.host.answers import NotComparable, plain

__all__ = ["Case", "FunctionCase", "StdioCase", "read_cases"]

_FORMS = (
    "Known forms: {inputs: [...], outputs: [...], fn_name: ...} or its JSON text; a list of {input, output, testtype}, "
    "{fn_name, args, kwargs, expected}, {stdin, expected}, FunctionCase, StdioCase or 'assert f(1) == 2'"
)
_FUNCTION_KEYS = ("function", "fn_name", "func_name", "entry_point")
_EXPECTED_KEYS = ("expected", "output", "expected_output", "stdout")
_KIND_KEYS = ("testtype", "type")
_KINDS = {"stdin": "stdin", "stdin_stdout": "stdin", "functional": "functional", "function_call": "functional"}
_KNOWN = (*_FUNCTION_KEYS, "metadata", "args", "kwargs", "stdin", "input", *_EXPECTED_KEYS, *_KIND_KEYS)


@dataclass(frozen=True)
class FunctionCase:
    """One call and its value.

    `function` is a function of the module, or a method of its class `Solution`. `args` and `kwargs` are made of None,
    bool, int, float, str, bytes, list, tuple, dict and set; `expected` is what JSON can say, with tuples read as lists
    and the keys of a dict as text.
    """

    function: str
    args: Sequence[Any]
    expected: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    or_element: bool = False
    """A list of one element as `expected` stands also for the element, as in APPS."""


@dataclass(frozen=True)
class StdioCase:
    """What the program reads from standard input, and what it has to print."""

    stdin: str
    expected: str


Case = FunctionCase | StdioCase


def read_cases(tests: Any, function: str | None = None) -> list[Case]:
    """The cases of one problem.

    Args:
        tests: any of these forms.

            - APPS, TACO, verl's prime_code: `{"inputs": [...], "outputs": [...], "fn_name": "f"}` or this as JSON text.
              Without `fn_name`, inputs and outputs are texts or lists of lines. With it, an input is a list of
              arguments, or text with one JSON value a line (its output is JSON text as well).
            - LiveCodeBench: a list of `{"input": str, "output": str, "testtype": "stdin" | "functional"}`; a functional
              one takes its function from `fn_name`, `metadata.func_name` or the argument `function`.
            - DeepCoder: the same with `"type": "stdin_stdout" | "function_call"` and a list of arguments as input.
            - A list of `{"fn_name": "f", "args": [...], "kwargs": {...}, "expected": ...}` and
              `{"stdin": str, "expected": str}`.
            - A list of `FunctionCase` and `StdioCase`.
            - A list of texts `assert f(literals) == literal`. Any other assert is refused: it would have to run
              beside the program, which could read the expected value.
        function: the function of cases that name none.

    Raises:
        ConfigError: naming the case and what was expected there.
    """
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError:
            _fail("tests", f"text that is not JSON, beginning {tests[:40]!r}")
    if isinstance(tests, Mapping) and {"inputs", "outputs"} <= tests.keys():
        cases = _read_columns(tests, function)
    elif isinstance(tests, Sequence) and not isinstance(tests, str | bytes):
        cases = [_read_one(test, f"tests[{index}]", function) for index, test in enumerate(tests)]
    else:
        _fail("tests", f"expected a list, or a mapping with inputs and outputs, got {_short(tests)}")
    if not cases:
        _fail("tests", "there are none, so that nothing can be said about a program")
    return cases


def _read_columns(tests: Mapping[str, Any], function: str | None) -> list[Case]:
    inputs, outputs = tests["inputs"], tests["outputs"]
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
        _fail("tests", "inputs and outputs are not two lists of one length")
    function = tests.get("fn_name") or function
    cases: list[Case] = []
    for index, (given, expected) in enumerate(zip(inputs, outputs, strict=True)):
        place = f"tests.inputs[{index}]"
        if function is None:
            cases.append(StdioCase(_lines(given, place), _lines(expected, f"tests.outputs[{index}]")))
        else:
            cases.append(_call_of(function, given, expected, place))
    return cases


def _read_one(test: Any, place: str, function: str | None) -> Case:
    if isinstance(test, StdioCase):
        return StdioCase(_lines(test.stdin, f"{place}.stdin"), _lines(test.expected, f"{place}.expected"))
    if isinstance(test, FunctionCase):
        return _checked(test, place)
    if isinstance(test, str):
        return _checked(_read_assert(test, place), place)
    if isinstance(test, Mapping):
        return _read_mapping(test, place, function)
    _fail(place, f"expected a mapping, a case or an assert, got {_short(test)}")


def _read_mapping(test: Mapping[str, Any], place: str, function: str | None) -> Case:
    for key in test:
        if key not in _KNOWN:
            raise ConfigError(f"{place}.{key}", "unknown key", did_you_mean(str(key), _KNOWN))
    if not set(_EXPECTED_KEYS) & test.keys():
        _fail(place, "neither expected nor output")
    given = {key: value for key, value in test.items() if value is not None}  # tables fill in what a row does not have
    expected = next((given[key] for key in _EXPECTED_KEYS if key in given), None)
    own_name = _function_name(given, place)
    name = own_name or function
    if "args" in given:
        if name is None:
            _fail(place, "args without a function's name")
        return _checked(FunctionCase(name, given["args"], expected, given.get("kwargs", {})), place)
    key = "stdin" if "stdin" in given else "input"
    if key not in given:
        _fail(place, "no args, stdin or input")
    kind = next((given[key] for key in _KIND_KEYS if key in given), "functional" if own_name else "stdin")
    if kind not in _KINDS:
        _fail(f"{place}.testtype", f"expected one of {', '.join(_KINDS)}, got {kind!r}")
    if _KINDS[kind] == "functional":
        if name is None:
            _fail(place, "a functional case without a function's name (fn_name, metadata.func_name or `function=`)")
        return _call_of(name, given[key], expected, place)
    return StdioCase(_lines(given[key], f"{place}.{key}"), _lines(expected, f"{place}.expected"))


def _function_name(test: Mapping[str, Any], place: str) -> str | None:
    metadata = test.get("metadata") or {}
    if isinstance(metadata, str):
        metadata = _from_json(metadata, f"{place}.metadata")
    found = [source[key] for source in (test, metadata) for key in _FUNCTION_KEYS if source.get(key)]
    return found[0] if found else None


def _call_of(function: str, given: Any, expected: Any, place: str) -> FunctionCase:
    """A call whose arguments are a list, or text with one JSON value a line (then its value is JSON text as well)."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        args = [_whole_keys(value) for value in given]
        return _checked(FunctionCase(function, args, expected, or_element=True), place)
    if not isinstance(given, str):
        _fail(place, f"expected a list of arguments or JSON text, got {_short(given)}")
    args = [_whole_keys(_from_json(line, place)) for line in given.splitlines() if line.strip()]
    if isinstance(expected, str):
        expected = _from_json(expected, place)
    return _checked(FunctionCase(function, args, expected), place)


def _read_assert(text: str, place: str) -> FunctionCase:
    """`assert f(literals) == literal`, by its syntax tree."""
    try:
        (statement,) = ast.parse(text).body
        match statement:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords),
                    ops=[ast.Eq()],
                    comparators=[expected],
                )
            ) if all(item.arg for item in keywords):
                kwargs = {str(item.arg): ast.literal_eval(item.value) for item in keywords}
                return FunctionCase(name, [ast.literal_eval(arg) for arg in args], ast.literal_eval(expected), kwargs)
    except (SyntaxError, ValueError):
        pass
    problem = f"{text[:80]!r} is not `assert f(literals) == literal`, and running it would show it to the program"
    raise ConfigError(place, problem, "Write the call and its value: {fn_name, args, expected}")


def _checked(case: FunctionCase, place: str) -> FunctionCase:
    """The case with what it expects in JSON's terms, and its arguments known to survive the way to the child."""
    if not isinstance(case.function, str) or not case.function.isidentifier():
        _fail(f"{place}.function", f"{case.function!r} is not a function's name")
    if not isinstance(case.args, Sequence) or isinstance(case.args, str | bytes):
        _fail(f"{place}.args", f"expected a list, got {_short(case.args)}")
    if not isinstance(case.kwargs, Mapping) or not all(isinstance(key, str) for key in case.kwargs):
        _fail(f"{place}.kwargs", f"expected a mapping with names as keys, got {_short(case.kwargs)}")
    args, kwargs = list(case.args), dict(case.kwargs)
    try:
        marshal.dumps((args, kwargs))
    except ValueError:
        _fail(f"{place}.args", f"not made of plain values alone: {_short((args, kwargs))}")
    try:
        expected = plain(case.expected)
    except NotComparable as error:
        _fail(f"{place}.expected", str(error))
    return FunctionCase(case.function, args, expected, kwargs, case.or_element)


def _whole_keys(value: Any) -> Any:
    """Undo what JSON did to a dict with whole numbers as keys, as the graders of these data sets do."""
    if isinstance(value, dict) and value and all(isinstance(key, str) and key.isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def _lines(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    _fail(place, f"expected text or a list of lines, got {_short(value)}")


def _from_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        _fail(place, f"not JSON: {text[:80]!r}")


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else f'{text[:80]}...'}"


def _fail(place: str, problem: str) -> NoReturn:
    raise ConfigError(place, problem, _FORMS)
