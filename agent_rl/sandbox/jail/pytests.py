"""Runs the tests of a row as pytest runs them, next to a program that is reached through a `Link`.

Functions `test*`, classes `Test*` and `unittest.TestCase`, `check(candidate)`, asserts of the module; parametrize and
the marks that leave a test out, fixtures with scopes and `yield`, set-up and tear-down, `raises`, `approx`, `capsys`. A
test that uses anything else of pytest, mocks or files says nothing about the program.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import io
import json
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from .call import begin
from .stand_ins import Broken, CannotCross, TestSide, is_stand_in

__all__ = ["run_tests"]

_NAME = "test_solution"
_SCOPES = ("function", "class", "module", "package", "session")


class _Skip(BaseException):
    pass


def _skip(*_: Any, **__: Any) -> None:
    raise _Skip


def _fail(*_: Any, **__: Any) -> None:
    raise AssertionError


class _Mark:
    """`pytest.mark.NAME(...)`: kept in the list `pytestmark` of what it decorates."""

    def __init__(self, name: str = "", args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> None:
        self.name, self.args, self.kwargs = name, args, dict(kwargs or {})

    def __getattr__(self, name: str) -> _Mark:
        return _Mark(name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs or not (inspect.isfunction(args[0]) or inspect.isclass(args[0])):
            return _Mark(self.name, args, kwargs)
        target: Any = args[0]
        target.pytestmark = [self, *vars(target).get("pytestmark", ())]
        return target


class _Param(tuple[Any, ...]):
    marks: Sequence[_Mark] = ()


def _param(*values: Any, marks: Any = (), id: Any = None) -> _Param:
    param = _Param(values)
    param.marks = marks if isinstance(marks, list | tuple) else (marks,)
    return param


class _Fixture:
    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.function, self.params = function, options.get("params")
        self.name: str = options.get("name") or function.__name__
        self.scope: str = options.get("scope", "function")
        self.autouse: bool = options.get("autouse", False)


def _fixture(function: Any = None, **options: Any) -> Any:
    return _Fixture(function, options) if function else lambda function: _Fixture(function, options)


def _around(scope: str, hooks: Callable[[str], Any], names: tuple[str, str], *args: Any) -> _Fixture:
    """Set-up and tear-down as a fixture."""

    def fixture() -> Iterator[None]:
        for name in names:
            if (hook := hooks(name)) is not None:
                _finish(hook(*args[: len(_parameters(hook))]))
            if name == names[0]:
                yield

    return _Fixture(fixture, {"scope": scope, "autouse": True, "name": f"around {scope}"})


@contextmanager
def _raises(expected: Any, *, match: Any = None) -> Iterator[Any]:
    info = SimpleNamespace()
    info.match = lambda pattern: _true(re.search(pattern, str(info.value)))
    try:
        yield info
    except expected as error:
        if isinstance(error, Broken | CannotCross | _Skip):
            raise
        info.value, info.type, info.typename = error, type(error), type(error).__name__
        if match is not None:
            info.match(match)
        return
    raise AssertionError


class _Approx:
    def __init__(self, expected: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> None:
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, actual: Any) -> bool:
        expected, more = self.expected, (self.rel, self.abs, self.nan_ok)
        if hasattr(expected, "tolist"):
            return hasattr(actual, "tolist") and bool(_Approx(expected.tolist(), *more) == actual.tolist())
        if isinstance(expected, dict):
            same = isinstance(actual, dict) and actual.keys() == expected.keys()
            return same and all(_Approx(value, *more) == actual[key] for key, value in expected.items())
        if isinstance(expected, list | tuple):
            same = isinstance(actual, list | tuple) and len(actual) == len(expected)
            return same and all(_Approx(one, *more) == other for one, other in zip(expected, actual, strict=True))
        if not isinstance(actual, (int, float, complex)) and not hasattr(actual, "as_integer_ratio"):
            return bool(actual == expected)
        if actual != actual or expected != expected:
            return bool(self.nan_ok and actual != actual and expected != expected)
        absolute = 1e-12 if self.abs is None else self.abs
        relative = (1e-6 if self.abs is None else 0.0) if self.rel is None else self.rel
        return bool(actual == expected or abs(actual - expected) <= max(absolute, relative * abs(expected)) < math.inf)

    __hash__ = None  # type: ignore[assignment]


class _Module(ModuleType):
    """A module whose other names `get` knows."""

    def __init__(self, name: str, get: Callable[[str], Any], names: Mapping[str, Any] | None = None) -> None:
        super().__init__(name)
        vars(self).update({"_get": get, **(names or {})})
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":
            raise AttributeError(name)
        return vars(self)["_get"](name)


class _Runner:
    """Runs the tests of one module.

    Args:
        link: to the program.
        stop: end at the first test that is not passed.

    Attributes:
        results: "passed", "failed" or "unknown", and why, of each test that counts.
    """

    def __init__(self, link: TestSide, stop: bool) -> None:
        self.link, self.stop = link, stop
        self.results: list[tuple[str, str]] = []
        self._values: dict[str, dict[Any, Any]] = {scope: {} for scope in _SCOPES}
        self._ends = {scope: ExitStack() for scope in _SCOPES}
        self._fixtures: Mapping[str, _Fixture] = {}
        self._owner: Any = None
        self._params: Mapping[str, Any] = {}

    def attempt(self, work: Callable[[], Any], marks: Sequence[_Mark] = (), *, counts: bool = True) -> None:
        """One test; with `counts` false it counts only if it is not passed."""
        if self.stop and any(outcome != "passed" for outcome, _ in self.results):
            return
        link, outcome, reason = self.link, "passed", ""
        link.problem = link.problem if isinstance(link.problem, Broken) else None
        try:
            for mark in marks:
                if mark.name in ("skip", "xfail") or (mark.name == "skipif" and mark.args[0]):
                    raise _Skip
            work()
        except BaseException as error:  # noqa: BLE001 - also SystemExit of the program
            if isinstance(error, (_Skip, *_unittest("SkipTest"))):
                return
            outcome, reason = "failed", type(error).__name__
        if link.problem is not None:
            outcome, reason = "failed" if isinstance(link.problem, Broken) else "unknown", str(link.problem)
        if counts or outcome != "passed":
            self.results.append((outcome, reason))

    def module(self, names: Mapping[str, Any]) -> None:
        """The functions and classes of a module."""
        fixtures = _fixtures(names, _around("module", names.get, ("setup_module", "teardown_module")))
        for name, value in list(names.items()):
            if inspect.isfunction(value) and name.startswith("test"):
                around = _around("function", names.get, ("setup_function", "teardown_function"), value)
                self._function(value, {**fixtures, around.name: around}, _marks(names), lambda: None)
            elif inspect.isclass(value) and value.__module__ == _NAME:
                is_test = name.startswith("Test") or issubclass(value, _unittest("TestCase"))
                if is_test:
                    self._class(value, fixtures, _marks(names))
        self._close("module", "package", "session")

    def _class(self, kind: Any, fixtures: Mapping[str, _Fixture], marks: Sequence[_Mark]) -> None:
        is_unittest = issubclass(kind, _unittest("TestCase"))
        style = ("setUpClass", "tearDownClass", "setUp", "tearDown") if is_unittest else _HOOKS
        names = {name: getattr(kind, name) for base in kind.__mro__[::-1] for name in vars(base)}
        marks = [*(mark for base in kind.__mro__ for mark in _marks(vars(base))), *marks]
        around = _around("class", lambda name: getattr(kind, name, None), style[:2])
        for name in names:
            if name.startswith("test") and callable(names[name]):
                method = SimpleNamespace(__name__=name)
                own = _around("function", lambda name: getattr(self._owner, name, None), style[2:], method)
                owner = (lambda name=name: kind(name)) if is_unittest else kind
                self._function(names[name], {**fixtures, **_fixtures(names, around, own)}, marks, owner)
        self._close("class")

    def _function(
        self,
        function: Callable[..., Any],
        fixtures: Mapping[str, _Fixture],
        marks: Sequence[_Mark],
        owner: Callable[[], Any],
    ) -> None:
        """A test with each of its parameters, and of those of its fixtures."""
        marks = [*_marks(vars(function)), *marks]
        choices = [_rows(mark) for mark in marks if mark.name == "parametrize"]
        direct = {name for rows in choices for params, _ in rows for name in params}
        asked = [name for mark in marks if mark.name == "usefixtures" for name in mark.args]
        first = sorted(
            [*asked, *(each.name for each in fixtures.values() if each.autouse)],
            key=lambda name: -_rank(fixtures, name),
        )
        needed = [*first, *_parameters(function)]
        for name in needed:  # which grows
            if name in fixtures and name not in direct:
                needed += [each for each in _parameters(fixtures[name].function) if each not in needed]
        for name in dict.fromkeys(needed):
            if name in fixtures and name not in direct and fixtures[name].params and f"{name}.param" not in direct:
                choices.insert(0, _rows(_Mark("", (f"{name}.param", fixtures[name].params))))
        for parts in product(*choices[::-1]):
            params = {name: value for part, _ in parts for name, value in part.items()}

            def work(params: Mapping[str, Any] = params) -> None:
                self._fixtures, self._params, self._owner = fixtures, params, owner()
                try:
                    for name in first:
                        self._value(name)
                    _finish(function(**{name: self._value(name) for name in _parameters(function)}))
                finally:
                    self._values["function"].clear()
                    self._ends["function"].close()

            self.attempt(work, [*marks, *(mark for _, more in parts for mark in more)])

    def _value(self, name: str) -> Any:
        """The value of a parameter of a test or a fixture."""
        if name in self._params or name == "self":
            return self._owner if name == "self" else self._params[name]
        fixture = self._fixtures.get(name) or _BUILT_IN.get(name)
        if fixture is None:
            raise self.link.refuse(f"there is no fixture {name}")
        param = self._params.get(f"{name}.param")
        values, ends, key = self._values[fixture.scope], self._ends[fixture.scope], (name, id(param))
        if key not in values:
            request = SimpleNamespace(param=param, addfinalizer=ends.callback)
            names = _parameters(fixture.function)
            made = fixture.function(**{each: request if each == "request" else self._value(each) for each in names})
            if inspect.isgenerator(made):
                ends.callback(next, made, None)
                made = next(made)
            values[key] = _finish(made)
        return values[key]

    def _close(self, *scopes: str) -> None:
        for scope in scopes:
            self._values[scope].clear()
            self.attempt(self._ends[scope].close, counts=False)


def _capsys() -> Iterator[Any]:
    before = sys.stdout

    def read() -> Any:
        text, sys.stdout = sys.stdout.getvalue(), io.StringIO()  # type: ignore[union-attr]
        return SimpleNamespace(out=text, err="")

    sys.stdout = io.StringIO()
    yield SimpleNamespace(readouterr=read)
    sys.stdout = before


_HOOKS = ("setup_class", "teardown_class", "setup_method", "teardown_method")
_BUILT_IN = {"capsys": _Fixture(_capsys, {})}


def _unittest(name: str) -> tuple[type, ...]:
    """A class of unittest, where the tests have imported it."""
    return (getattr(sys.modules["unittest"], name),) if "unittest" in sys.modules else ()


def _fixtures(names: Mapping[str, Any], *more: _Fixture) -> dict[str, _Fixture]:
    return {each.name: each for each in (*names.values(), *more) if isinstance(each, _Fixture)}


def _rank(fixtures: Mapping[str, _Fixture], name: str) -> int:
    return _SCOPES.index(fixtures[name].scope) if name in fixtures else 0


def _marks(names: Mapping[str, Any]) -> list[_Mark]:
    marks = names.get("pytestmark", ())
    return [mark for mark in (marks if isinstance(marks, list | tuple) else (marks,)) if isinstance(mark, _Mark)]


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]


def _rows(mark: _Mark) -> list[tuple[dict[str, Any], Sequence[_Mark]]]:
    """The parameters of a mark `parametrize`, by name, with the marks of their own."""
    names, values, *_ = [*mark.args, *(mark.kwargs[key] for key in ("argnames", "argvalues") if key in mark.kwargs)]
    names = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else [*names]
    names = [f"{name}.param" if mark.kwargs.get("indirect") else name for name in names]
    rows = [value if isinstance(value, _Param) or len(names) > 1 else (value,) for value in values]
    return [(dict(zip(names, row, strict=True)), getattr(row, "marks", ())) for row in rows]


def _finish(value: Any) -> Any:
    return importlib.import_module("asyncio").run(value) if inspect.iscoroutine(value) else value


def _true(value: Any) -> None:
    if not value:
        raise AssertionError


def _names(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def _prepare(link: TestSide) -> None:
    """Put what stands for pytest and the program among the modules, and shut what the program would not see."""

    def closed(name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> None:
            raise link.refuse(f"the test uses {name}")

        return refuse

    for module in (builtins, io, os):
        for name in ("open", "mkdir"):
            setattr(module, name, closed(name))
    seed = random.seed
    random.seed = lambda *args: (seed(*args), link.call({"g": "random:seed"}, *args))[0]
    names = {"mark": _Mark(), "param": _param, "fixture": _fixture, "raises": _raises, "approx": _Approx}
    names |= {"skip": _skip, "xfail": _skip, "fail": _fail, "importorskip": importlib.import_module}
    _Module("pytest", lambda name: closed(name)(), names)


def _run_in_program(link: TestSide) -> None:
    """Let `asyncio.run` take what a coroutine function of the program returns."""
    module: Any = importlib.import_module("asyncio")
    run = module.run
    module.run = lambda main, **_: link.call({"g": "asyncio:run"}, main) if is_stand_in(main) else run(main)


def run_tests(order: Mapping[str, Any], descriptor: int) -> str:
    """Run the tests of a row.

    Args:
        order: `tests` and `prefix` as source, `entry_point` of `check(candidate)` as an expression, `limit_s` of a
            call, and whether to `stop` at the first test that is not passed.
        descriptor: the socket to the program.

    Returns:
        JSON with `results`, "passed", "failed" or "unknown" of each test and the reason, and `slow_s`, the seconds of a
        call that was given up although the program has used less of a processor.
    """
    sys.stdout = io.StringIO()
    link = TestSide(descriptor, order["limit_s"])
    runner = _Runner(link, order["stop"])
    _prepare(link)
    tree, entry = ast.parse(order["tests"]), order["entry_point"]
    names = vars(_Module(_NAME, _missing))
    asserts = 0 if order["stop"] else _divide(tree)
    names["_assert"] = lambda work: runner.attempt(lambda: _true(work()))
    runner.attempt(lambda: _execute(link, names, tree, order), counts=_is_test(tree) and not asserts)
    if all(outcome == "passed" for outcome, _ in runner.results):
        runner.module(names)
        if entry and inspect.isfunction(check := names.get("check")):
            least = len(runner.results) + asserts
            runner.attempt(lambda: check(eval(entry, names)), counts=not asserts)  # noqa: S307 - the row's own code
            runner.results += [("failed", "not reached")] * (least - len(runner.results))
    return json.dumps({"results": runner.results, "slow_s": link.slow_s})


def _divide(tree: ast.Module) -> int:
    """Make each assert of `check(candidate)` a test of its own; returns how many there are."""
    count = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            for place, each in enumerate(node.body):
                if isinstance(each, ast.Assert):
                    text = f"_assert(lambda: ({ast.unparse(each.test)}))"
                    node.body[place], count = ast.parse(text).body[0], count + 1
    return count


def _missing(name: str) -> None:
    raise AttributeError(name)


def _execute(link: TestSide, names: dict[str, Any], tree: ast.Module, order: Mapping[str, Any]) -> None:
    """Run the module of the tests, where the names of the program are known."""
    begin(names, sys.modules)
    names["__name__"] = _NAME
    before = dict(names)
    with suppress(Exception):  # where it is not a module by itself, the program has its names
        exec(order["prefix"], names)  # noqa: S102 - the row's own code, in a jail
    names.pop(order["entry_point"].partition("(")[0], None)
    link.local = {each for each in names.values() if inspect.isclass(each) and each.__module__ == _NAME}
    link.find_process()
    own = link.call({"own": "own_names"})
    _Module("solution", link.name, {"__all__": own})
    asked = _names(compile(tree, _NAME, "exec")) | _names(compile(order["entry_point"] or "0", _NAME, "eval"))
    for name in asked.intersection(own) - vars(builtins).keys():
        if name not in names or names[name] is before.get(name):
            names[name] = link.name(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in [f"{getattr(node, 'module', None) or ''}.{each.name}".lstrip(".") for each in node.names]:
                root = name.partition(".")[0]
                if name.startswith("unittest.mock") or not (root in sys.modules or importlib.util.find_spec(root)):
                    raise link.refuse(f"the tests import {name}")
                if root == "asyncio":
                    _run_in_program(link)
    exec(compile(tree, _NAME, "exec"), names)  # noqa: S102 - as above


def _is_test(tree: ast.Module) -> bool:
    """Whether the module asserts something itself, or calls `check`."""
    defined = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    nodes = [node for each in tree.body if not isinstance(each, defined) for node in ast.walk(each)]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in nodes) or "check" in calls or "pytest.raises" in calls
