"""Reads tests that are Python code into cases: what is computed, run with the program, and its value, compared outside.

Nothing here runs anything, and no test is run as it stands, because a program can read what is run beside it. So each
assert has to compare what the program computes with a literal, or with a name for one:

    def check(candidate):                          # LeetCode, HumanEval: candidate is the entry point
        assert candidate(root=tree_node([1, 2])) == [2, 1]
        assert not candidate([])

    def test_total():                              # KodCode, pytest: the functions are those of the program
        cart = Cart([1, 2])
        assert cart.total() == 3
        with pytest.raises(ValueError):
            cart.add(-1)

What stands before an assert in its function is run before it. `abs(f(x) - 1.5) < 0.1` is read as `f(x) == 1.5`, with
the tolerance of the scorer.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.sandbox import FunctionCase

__all__ = ["read_python_tests"]

_REMEDY = "Write each test as `assert <what the program computes> == <literal>`, or the cases as data"


def read_python_tests(text: str, entry_point: str | None = None) -> tuple[list[FunctionCase], str]:
    """The cases of tests written as Python, and functions to append to the program, which they call.

    Args:
        text: functions `check(candidate)` and `test_*`, classes `Test*`, asserts of a module.
        entry_point: what `candidate` is: `f`, or `Solution().f`. A call `check(f)` in the text says it as well.

    Raises:
        ConfigError: it is not Python, has no assert, or one that cannot be divided into call and value.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ConfigError("tests", f"no Python: {error}", _REMEDY) from None
    called = [node.value.args[0] for node in module.body if _is_check(node)]  # type: ignore[attr-defined]
    reader = _Reader(entry_point or (ast.unparse(called[0]) if called else None))
    reader.module(module)
    if not reader.cases:
        raise ConfigError("tests", "no assert", _REMEDY)
    return reader.cases, "\n\n".join(reader.functions)


class _Reader:
    """Collects the cases of a module."""

    def __init__(self, entry_point: str | None) -> None:
        self.entry_point = entry_point
        self.cases: list[FunctionCase] = []
        self.functions: list[str] = []

    def module(self, module: ast.Module) -> None:
        loose = [each for each in module.body if isinstance(each, ast.Assert | ast.With)]
        setup = [each for each in module.body if each not in loose and _is_setup(each)]
        for node in module.body:
            match node:
                case ast.FunctionDef(name="check", args=ast.arguments(args=[ast.arg(arg=candidate)])):
                    if self.entry_point is None:
                        raise ConfigError("tests.entry_point", "missing for check(candidate)", "Name the function")
                    self.block(node.body, setup, candidate)
                case ast.FunctionDef(name=name) if name.startswith("test"):
                    self.block(node.body, setup)
                case ast.ClassDef(name=name) if name.startswith("Test"):
                    for method in node.body:
                        if isinstance(method, ast.FunctionDef) and method.name.startswith("test"):
                            self.block(method.body, setup)
        self.block(loose, setup)

    def block(self, statements: Sequence[ast.stmt], setup: Sequence[ast.stmt], candidate: str | None = None) -> None:
        """The asserts of a function; every other statement is run before those that follow it."""
        before = list(setup)
        for statement in statements:
            match statement:
                case ast.Assert(test=ast.Constant(value=True)):
                    pass  # as often in HumanEval
                case ast.Assert():
                    self.case(statement, before, candidate)
                case ast.With(items=[ast.withitem(context_expr=ast.Call(func=called, args=[kind, *_]))]) if (
                    ast.unparse(called) == "pytest.raises"
                ):
                    self.raised(statement, kind, before, candidate)
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    if any(isinstance(node, ast.Assert) for node in ast.walk(statement)):
                        raise _unreadable(statement)
                    before.append(statement)

    def case(self, statement: ast.Assert, before: Sequence[ast.stmt], candidate: str | None) -> None:
        names = {name: value for each in before for name, value in _named_literals(each)}
        computed, shown, expected = _parts(statement, names)
        before = [each for each in before if not _only_names(each, shown, computed, before)]
        call = None if before else self.plain_call(computed, candidate)
        if call is not None:
            name, args, kwargs = call
            self.cases.append(FunctionCase(name, args, expected, kwargs))
        else:
            self.add([*before, ast.Return(computed)], candidate, expected)

    def raised(self, statement: ast.With, kind: ast.expr, before: Sequence[ast.stmt], candidate: str | None) -> None:
        """`with pytest.raises(...)`: a function that tells whether its body has raised."""
        (told,) = ast.parse(f"try: pass\nexcept {ast.unparse(kind)}: return True").body
        assert isinstance(told, ast.Try)
        told.body = statement.body
        self.add([*before, told, ast.Return(ast.Constant(False))], candidate, True)

    def add(self, body: Sequence[ast.stmt], candidate: str | None, expected: Any) -> None:
        name = f"_expression_{len(self.functions)}"
        (function,) = ast.parse(f"def {name}(): pass").body
        assert isinstance(function, ast.FunctionDef)
        made = ast.parse(f"{candidate} = {self.entry_point}").body if candidate else []
        function.body = [*made, *copy.deepcopy(list(body))]
        self.functions.append(ast.unparse(ast.fix_missing_locations(function)))
        self.cases.append(FunctionCase(name, [], expected))

    def plain_call(self, node: ast.expr, candidate: str | None) -> tuple[str, list[Any], dict[str, Any]] | None:
        """The name and the literal arguments of a call of one function; None for anything else."""
        if not isinstance(node, ast.Call) or not all(keyword.arg for keyword in node.keywords):
            return None
        name = ast.unparse(node.func)
        name = (self.entry_point or "") if name == candidate else name
        name = name.removeprefix("Solution().")
        if not name.isidentifier() or (candidate is None and name not in ast.unparse(node.func)):
            return None
        try:
            args = [_literal(arg) for arg in node.args]
            return name, args, {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
        except ValueError:
            return None


def _parts(statement: ast.Assert, names: Mapping[str, Any]) -> tuple[ast.expr, str | None, Any]:
    """What is computed, the name of the value where it has one, and the value."""
    match statement.test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            pairs = [(left, right), (right, left)]
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[ast.Constant()],
        ):
            pairs = [(left, right), (right, left)]
        case ast.UnaryOp(op=ast.Not(), operand=computed):
            return _as_bool(computed), None, False
        case ast.Call() | ast.Name() | ast.Attribute() as computed:
            return _as_bool(computed), None, True
        case _:
            raise _unreadable(statement)
    for computed, value in pairs:
        if isinstance(value, ast.Name) and value.id in names:
            return computed, value.id, names[value.id]
        try:
            return computed, None, _literal(value)
        except ValueError:
            continue
    raise _unreadable(statement)


def _named_literals(statement: ast.stmt) -> list[tuple[str, Any]]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            try:
                return [(name, _literal(value))]
            except ValueError:
                pass
    return []


def _only_names(statement: ast.stmt, shown: str | None, computed: ast.expr, before: Sequence[ast.stmt]) -> bool:
    """Whether a statement only gives the expected value its name, so that the program must not see it."""
    if shown is None or not any(name == shown for name, _ in _named_literals(statement)):
        return False
    others = [each for each in before if each is not statement]
    used = [node for each in (computed, *others) for node in ast.walk(each) if isinstance(node, ast.Name)]
    return all(node.id != shown for node in used)


def _is_check(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[_])):
            return True
    return False


def _is_setup(node: ast.stmt) -> bool:
    """Whether a statement of the module prepares the tests: a helper or a value, but no test and no import of them."""
    match node:
        case ast.Import(names=[ast.alias(name="pytest")]) | ast.ImportFrom(module="solution" | "__future__"):
            return False
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name != "check" and not name.lower().startswith("test")
        case ast.Assign(targets=[ast.Name(id="METADATA")]) | ast.If() | ast.Expr():
            return False
    return True


def _as_bool(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool", ast.Load()), [node], [])


def _literal(node: ast.expr) -> Any:
    """The value of a literal, in which infinity may stand.

    Raises:
        ValueError: it is none.
    """
    return ast.literal_eval(_Constants().visit(copy.deepcopy(node)))


class _Constants(ast.NodeTransformer):
    """Writes `inf`, `math.inf`, `float("inf")` and arithmetic of numbers, such as `1 / 3`, as constants."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            return ast.Constant(math.inf) if ast.unparse(node) in ("inf", "math.inf", "float('inf')") else node
        node = self.generic_visit(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            numbers = [ast.literal_eval(side) for side in (node.left, node.right)]
            if all(isinstance(number, int | float) for number in numbers):
                with contextlib.suppress(ArithmeticError):
                    return ast.Constant(_ARITHMETIC[type(node.op)](*numbers))
        return node


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _unreadable(statement: ast.stmt) -> ConfigError:
    problem = f"{ast.unparse(statement)[:80]!r} does not compare what the program computes with a literal"
    return ConfigError("tests", problem, _REMEDY)
