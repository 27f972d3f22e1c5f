"""Converts tests in the formats of data sets to `FunctionCase` and `StdioCase`, without running a program."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.sandbox.jail.call import NotComparable, plain

_FORMS = (
    "Known forms: {inputs: [...], outputs: [...], fn_name: ...} or its JSON text; a list of {input, output, testtype}, "
    "{fn_name, args, kwargs, expected}, {stdin, expected}, FunctionCase, StdioCase or 'assert f(1) == 2'"
)
_FUNCTION_KEYS = ("function", "fn_name", "func_name", "entry_point")
_EXPECTED_KEYS = ("expected", "output", "expected_output", "stdout")
_KIND_KEYS = ("testtype", "type")
_KINDS = {"stdin": "stdin", "stdin_stdout": "stdin", "functional": "functional", "function_call": "functional"}
_LEAVES = (type(None), bool, int, float, str, bytes, complex, type(...))
_KNOWN = (*_FUNCTION_KEYS, "metadata", "args", "kwargs", "stdin", "input", *_EXPECTED_KEYS, *_KIND_KEYS)


@dataclass(frozen=True)
class FunctionCase:
    """One function call and its expected value.

    Attributes:
        function: name of a function in the program, or of a method of the program's `Solution` class.
        args: positional arguments, of types None, bool, int, float, str, bytes, list, tuple, dict and set.
        expected: expected value, as JSON data: tuples become lists, keys become strings.
        kwargs: keyword arguments, of the same types as `args`.
        or_element: whether a one-element list in `expected` also matches the element itself, as in APPS.
    """

    function: str
    args: Sequence[Any]
    expected: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    or_element: bool = False


@dataclass(frozen=True)
class StdioCase:
    """A program's standard input and the expected output."""

    stdin: str
    expected: str


Case = FunctionCase | StdioCase


def read_cases(tests: Any, function: str | None = None) -> list[Case]:
    """Read the cases of one problem.

    Args:
        tests: the tests, in one of the forms below.

            - APPS, TACO, verl's prime_code: `{"inputs": [...], "outputs": [...], "fn_name": "f"}` or the same as JSON
              text. Without `fn_name`, inputs and outputs are strings or lists of lines. With `fn_name`, an input is a
              list of arguments, or text with one JSON value per line (the output must be JSON text too).
            - LiveCodeBench: a list of `{"input": str, "output": str, "testtype": "stdin" | "functional"}`; a functional
              test takes its function from `fn_name`, `metadata.func_name` or the `function` argument.
            - DeepCoder: like LiveCodeBench, with `"type": "stdin_stdout" | "function_call"` and a list as input.
            - A list of `{"fn_name": "f", "args": [...], "kwargs": {...}, "expected": ...}` and
              `{"stdin": str, "expected": str}`.
            - A list of `FunctionCase` and `StdioCase`.
            - A list of strings `assert f(literals) == literal`. Other asserts are rejected, because they would run in
              the program's process, which could read the expected value.
        function: name of the function for cases without a function name.

    Raises:
        ConfigError: a case cannot be read; the error names the case and the expected form.
    """
    if isinstance(tests, str):
        tests = _from_json(tests, "tests")
    if isinstance(tests, Mapping) and {"inputs", "outputs"} <= tests.keys():
        cases = _read_columns(tests, function)
    elif _is_list(tests):
        cases = [_read_one(test, f"tests[{index}]", function) for index, test in enumerate(tests)]
    else:
        _fail("tests", f"expected a list, or a mapping with inputs and outputs, got {_short(tests)}")
    if not cases:
        _fail("tests", "the list is empty, so a program cannot be graded")
    return cases


def _read_columns(tests: Mapping[str, Any], function: str | None) -> list[Case]:
    inputs, outputs = tests["inputs"], tests["outputs"]
    if not _is_list(inputs) or not _is_list(outputs) or len(inputs) != len(outputs):
        _fail("tests", "inputs and outputs are not two lists of the same length")
    name = _first(tests, _FUNCTION_KEYS) or function
    rows = ({"input": value, "output": expected} for value, expected in zip(inputs, outputs, strict=True))
    return [_read_mapping({**row, "fn_name": name}, f"tests.inputs[{n}]", None) for n, row in enumerate(rows)]


def _read_one(test: Any, place: str, function: str | None) -> Case:
    match test:
        case StdioCase():
            return StdioCase(_lines(test.stdin, f"{place}.stdin"), _lines(test.expected, f"{place}.expected"))
        case FunctionCase():
            return _checked(test, place)
        case str():
            return _checked(_read_assert(test, place), place)
        case Mapping():
            return _read_mapping(test, place, function)
    _fail(place, f"expected a mapping, a case or an assert, got {_short(test)}")


def _read_mapping(test: Mapping[str, Any], place: str, function: str | None) -> Case:
    for unknown in test.keys() - set(_KNOWN):
        raise ConfigError(f"{place}.{unknown}", "unknown key", did_you_mean(str(unknown), _KNOWN))
    if not set(_EXPECTED_KEYS) & test.keys():
        _fail(place, "the case has neither expected nor output")
    values = {key: value for key, value in test.items() if value is not None}  # tables fill missing keys with None
    metadata = values.get("metadata") or {}
    if isinstance(metadata, str):
        metadata = _from_json(metadata, f"{place}.metadata") or {}
    expected = _first(values, _EXPECTED_KEYS)
    own_name = _first(values, _FUNCTION_KEYS) or _first(metadata, _FUNCTION_KEYS)
    name = own_name or function
    key = next((key for key in ("args", "stdin", "input") if key in values), None)
    if key is None:
        _fail(place, "the case has no args, stdin or input")
    kind = _first(values, _KIND_KEYS, "functional" if own_name or key == "args" else "stdin")
    if kind not in _KINDS:
        _fail(f"{place}.testtype", f"expected one of {', '.join(_KINDS)}, got {kind!r}")
    if key != "args" and _KINDS[kind] == "stdin":
        return StdioCase(_lines(values[key], f"{place}.{key}"), _lines(expected, f"{place}.expected"))
    if name is None:
        _fail(place, f"{key} needs a function's name (fn_name, metadata.func_name or `function=`)")
    if key == "args":
        return _checked(FunctionCase(name, values["args"], expected, values.get("kwargs", {})), place)
    return _call_of(name, values[key], expected, place)


def _call_of(function: str, arguments: Any, expected: Any, place: str) -> FunctionCase:
    """Return a function case; text arguments have one JSON value per line, and `expected` is then JSON text too."""
    as_list = _is_list(arguments)
    if not as_list:
        if not isinstance(arguments, str):
            _fail(place, f"expected a list of arguments or JSON text, got {_short(arguments)}")
        arguments = [_from_json(line, place) for line in arguments.split("\n") if line.strip()]
        if isinstance(expected, str):
            expected = _from_json(expected, place)
    args = [_whole_keys(value) for value in arguments]
    return _checked(FunctionCase(function, args, expected, or_element=as_list), place)


def _read_assert(text: str, place: str) -> FunctionCase:
    """Parse `assert f(literals) == literal`."""
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
    problem = f"{text[:80]!r} is not `assert f(literals) == literal`, and running it shows the value to the program"
    raise ConfigError(place, problem, "Write the call and its value: {fn_name, args, expected}")


def _checked(case: FunctionCase, place: str) -> FunctionCase:
    """Check that a case's arguments are plain, and convert its expected value to JSON data."""
    if not isinstance(case.function, str) or not case.function.isidentifier():
        _fail(f"{place}.function", f"{case.function!r} is not a function's name")
    if not _is_list(case.args):
        _fail(f"{place}.args", f"expected a list, got {_short(case.args)}")
    if not isinstance(case.kwargs, Mapping) or not all(isinstance(key, str) for key in case.kwargs):
        _fail(f"{place}.kwargs", f"expected a mapping with names as keys, got {_short(case.kwargs)}")
    args, kwargs = list(case.args), dict(case.kwargs)
    if not _is_plain([args, kwargs]):
        _fail(f"{place}.args", f"expected only plain values, got {_short((args, kwargs))}")
    try:
        expected = plain(case.expected)
    except NotComparable as error:
        _fail(f"{place}.expected", str(error))
    return FunctionCase(case.function, args, expected, kwargs, case.or_element)


def _is_plain(value: Any) -> bool:
    """Whether `value` has only the types of arguments; `marshal` would write others, such as numpy's, as bytes."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset, dict):
        return all(map(_is_plain, value)) and (kind is not dict or all(map(_is_plain, value.values())))
    return kind in _LEAVES


def _whole_keys(value: Any) -> Any:
    """Convert a dict's string keys back to whole numbers, as the graders of these data sets do."""
    if isinstance(value, dict) and value and all(isinstance(key, str) and key.isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def _lines(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    _fail(place, f"expected text or a list of lines, got {_short(value)}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _first(mapping: Mapping[str, Any], keys: Sequence[str], default: Any = None) -> Any:
    return next((mapping[key] for key in keys if mapping.get(key) is not None), default)


def _from_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        _fail(place, f"expected JSON text, got {text[:80]!r}")


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else f'{text[:80]}...'}"


def _fail(place: str, problem: str) -> NoReturn:
    raise ConfigError(place, problem, _FORMS)
