"""Runs a row's tests with pytest against a program in another process, which the tests reach through a `Link`.

Top-level asserts and `check(candidate)` run without pytest. A test cannot judge the program if it uses mocks, files, or
a pytest feature that works only in the program's process.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import io
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .call import begin
from .stand_ins import Broken, TestSide, is_stand_in

_NAME = "test_solution"
_WITHOUT = """
cacheprovider doctest faulthandler junitxml logging monkeypatch pastebin recwarn setuponly setupplan terminal
threadexception tmpdir unraisableexception warnings
"""
_OPTIONS = "--disable-plugin-autoload --noconftest --assert=plain --capture=no --rootdir=. -c".split()  # noqa: SIM905
_OPTIONS += [os.devnull, *(f"-pno:{name}" for name in _WITHOUT.split())]


def run_tests(order: Mapping[str, Any], descriptor: int) -> str:
    """Run a row's tests.

    Args:
        order: `tests` and `prefix` (source code), `entry_point` (an expression for the argument of `check`), `limit_s`
            (the limit on one call, in CPU seconds), and `stop` (whether to stop at the first failure).
        descriptor: the socket to the program.

    Returns:
        A JSON list with an outcome ("passed", "failed" or "unknown") and a reason for each test.
    """
    sys.stdout = io.StringIO()
    link = TestSide(descriptor, order["limit_s"])
    results = _Results(link, order["stop"])
    tree, entry = ast.parse(order["tests"]), order["entry_point"]
    sys.modules[_NAME] = ModuleType(_NAME)
    names = vars(sys.modules[_NAME])
    asserts = 0 if order["stop"] else _divide(tree)
    names["_assert"] = lambda work: results.attempt(lambda: _require(work()))
    _prepare(link, order["tests"])
    results.attempt(lambda: _execute(link, names, tree, order), counts=_is_test(tree) and not asserts)
    if all(outcome == "passed" for outcome, _ in results.rows):
        if any(map(_is_pytests, names.items())):
            _run_pytest(results)
        if entry and inspect.isfunction(check := names.get("check")):
            least = len(results.rows) + asserts
            results.attempt(lambda: check(eval(entry, names)), counts=not asserts)  # noqa: S307 - this is the row's code
            results.rows += [("failed", "not reached")] * (least - len(results.rows))
    return json.dumps(results.rows)


class _Results:
    """The outcomes of a row's tests.

    Args:
        link: the link to the program.
        stop: whether to stop at the first failure.

    Attributes:
        rows: the outcome ("passed", "failed" or "unknown") and the reason for each counted test.
    """

    def __init__(self, link: TestSide, stop: bool) -> None:
        self.link, self._stop = link, stop
        self.rows: list[tuple[str, str]] = []

    @property
    def ended(self) -> bool:
        """Whether all remaining tests are skipped."""
        return self._stop and any(outcome != "passed" for outcome, _ in self.rows)

    def begin(self) -> None:
        """Start a test."""
        self.link.problem = self.link.problem if isinstance(self.link.problem, Broken) else None

    def add(self, reason: str, *, counts: bool = True) -> None:
        """Add a test's result; `reason` names its exception, if any; without `counts`, a passed test is left out."""
        outcome = "failed" if reason else "passed"
        if (problem := self.link.problem) is not None:
            outcome, reason = "failed" if isinstance(problem, Broken) else "unknown", str(problem)
        is_counted = isinstance(problem, Broken) and self.rows[-1:] == [(outcome, reason)]
        if counts or (outcome != "passed" and not is_counted):
            self.rows.append((outcome, reason))

    def attempt(self, work: Callable[[], Any], *, counts: bool = True) -> None:
        """Run `work` as a test."""
        if self.ended:
            return
        self.begin()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the program may also raise SystemExit
            if not _is_skip(error):
                self.add(type(error).__name__)
        else:
            self.add("", counts=counts)


def _is_skip(error: BaseException) -> bool:
    """Whether an exception from pytest or unittest skips the test."""
    places = (("unittest", "SkipTest"), ("_pytest.outcomes", "Skipped"))
    return isinstance(error, tuple(vars(sys.modules[module])[name] for module, name in places if module in sys.modules))


def _is_pytests(item: tuple[str, Any]) -> bool:
    name, value = item
    if inspect.isclass(value):
        is_case = "unittest" in sys.modules and issubclass(value, sys.modules["unittest"].TestCase)
        return value.__module__ == _NAME and (is_case or name.startswith("Test"))
    return name.startswith("test") and inspect.isfunction(value)


def _run_pytest(results: _Results) -> None:
    import pytest
    from _pytest.fixtures import FixtureLookupError

    reports: list[Any] = []

    class Module(pytest.Module):
        def _getobj(self) -> Any:
            return sys.modules[_NAME]

    class Plugin:
        @staticmethod
        def pytest_collection(session: Any) -> bool:
            session.items = list(session.genitems(Module.from_parent(session, path=Path(f"{_NAME}.py").absolute())))
            session.testscollected = len(session.items)
            return True

        @staticmethod
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(item: Any) -> Iterator[None]:
            results.begin()
            reports.clear()
            done = yield
            outcomes = {report.outcome: getattr(report, "error", "") for report in reports}
            if "skipped" not in outcomes:
                results.add(outcomes.get("failed", ""))
            item.session.shouldstop = results.ended
            return done

        @staticmethod
        def pytest_runtest_makereport(item: Any, call: Any) -> Any:
            """Report a failure without a traceback, because a traceback would read files."""
            error = call.excinfo and call.excinfo.value
            if isinstance(error, FixtureLookupError):
                results.link.refuse(f"there is no fixture {error.argname}")
            outcome: Any = "passed" if error is None else "skipped" if _is_skip(error) else "failed"
            kind = type(error).__name__
            reports.append(pytest.TestReport(item.nodeid, item.location, {}, outcome, None, call.when, error=kind))
            return reports[-1]

        @staticmethod
        def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
            if not inspect.iscoroutinefunction(pyfuncitem.obj):
                return None
            arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
            importlib.import_module("asyncio").run(pyfuncitem.obj(**arguments))
            return True

    before = len(results.rows)
    pytest.main(_OPTIONS, plugins=[Plugin()])
    if len(results.rows) == before and isinstance(results.link.problem, Broken):
        results.add("")


class _Solution(ModuleType):
    """The program as a module that the tests can import."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":
            raise AttributeError(name)
        return vars(self)["_link"].name(name)


def _require(value: Any) -> None:
    if not value:
        raise AssertionError


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return {*code.co_names, *(name for part in inner for name in _names(part))}


def _prepare(link: TestSide, tests: str) -> None:
    """Block functions whose effects the program would not see."""

    def closed(name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> None:
            raise link.refuse(f"the test uses {name}")

        return refuse

    for module in (builtins, io, os):
        for name in ("open", "mkdir"):
            setattr(module, name, closed(name))
    seed = random.seed
    random.seed = lambda *args: (seed(*args), link.call({"g": "random:seed"}, *args))[0]
    if "pytest" in tests:
        pytest = importlib.import_module("pytest")
        for name in ("MonkeyPatch", "deprecated_call", "warns"):
            setattr(pytest, name, closed(f"pytest.{name}"))


def _run_in_program(link: TestSide) -> None:
    """Let `asyncio.run` in the tests accept coroutines that the program has created."""
    module: Any = importlib.import_module("asyncio")
    run = module.run
    module.run = lambda main, **_: link.call({"g": "asyncio:run"}, main) if is_stand_in(main) else run(main)


def _divide(tree: ast.Module) -> int:
    """Turn each assert of `check(candidate)` into a separate test, and return the number of tests."""
    count = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            for place, statement in enumerate(node.body):
                if isinstance(statement, ast.Assert):
                    text = f"_assert(lambda: ({ast.unparse(statement.test)}))"
                    node.body[place], count = ast.parse(text).body[0], count + 1
    return count


def _execute(link: TestSide, names: dict[str, Any], tree: ast.Module, order: Mapping[str, Any]) -> None:
    """Run the tests' module with the program's names."""
    begin(names, sys.modules)
    names["__name__"] = _NAME
    before = dict(names)
    with suppress(Exception):  # names that a failed prefix does not define come from the program
        exec(order["prefix"], names)  # noqa: S102 - the row's code runs in a jail
    names.pop(order["entry_point"].partition("(")[0], None)
    link.local = {value for value in names.values() if inspect.isclass(value) and value.__module__ == _NAME}
    link.find_process()
    defined_names = link.call({"own": "own_names"})
    sys.modules["solution"] = _Solution("solution")
    vars(sys.modules["solution"]).update(_link=link, __all__=defined_names)
    used_names = _names(compile(tree, _NAME, "exec")) | _names(compile(order["entry_point"] or "0", _NAME, "eval"))
    for name in used_names.intersection(defined_names) - vars(builtins).keys():
        if name not in names or names[name] is before.get(name):
            names[name] = link.name(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in [f"{getattr(node, 'module', None) or ''}.{alias.name}".lstrip(".") for alias in node.names]:
                root = name.partition(".")[0]
                if name.startswith("unittest.mock") or not (root in sys.modules or importlib.util.find_spec(root)):
                    raise link.refuse(f"the tests import {name}")
                if root == "asyncio":
                    _run_in_program(link)
    exec(compile(tree, _NAME, "exec"), names)  # noqa: S102 - the row's code runs in a jail


def _is_test(tree: ast.Module) -> bool:
    """Whether the module contains asserts, or calls `check` or `pytest.raises`, outside of functions and classes."""
    definitions = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    nodes = [node for item in tree.body if not isinstance(item, definitions) for node in ast.walk(item)]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in nodes) or "check" in calls or "pytest.raises" in calls
