"""Turns tests that compute what they expect into tests that state it, by running the published solution once.

A test such as `for x in range(9): assert candidate(x) == f(x)` cannot be scored safely: it would have to run beside the
program that it judges. `recorded` runs it with the published solution in the sandbox, and writes down each call with
its value. Random numbers are drawn from a fixed seed, so that the same row always gives the same tests.
"""

from __future__ import annotations

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor

from agent_rl.errors import ConfigError
from agent_rl.sandbox import Execution, ExecutionStatus, PythonSandbox

__all__ = ["is_stated", "recorded"]

_PROGRAM = """\
import random
random.seed(0)

{solution}

{test}

_seen = {{}}
def _candidate(*args, **kwargs):
    given = ", ".join([*map(repr, args), *(f"{{name}}={{value!r}}" for name, value in kwargs.items())])
    value = {entry_point}(*args, **kwargs)
    _seen[given] = value
    return value

check(_candidate)
print("def check(candidate):")
for given, value in _seen.items():
    print(f"    assert candidate({{given}}) == {{value!r}}")
"""
_TIMEOUT_S = 20.0


def is_stated(test: str) -> bool:
    """Whether `check(candidate)` has only asserts that compare a call of the candidate with a literal.

    A call alone, `not` before it, and `abs(call - number) < number` count as well.
    """
    functions = [node for node in ast.parse(test).body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(functions) != 1:
        return False
    return all(_is_stated(node) for node in functions[0].body)


def recorded(test: str, entry_point: str, solution: str) -> str:
    """The test as asserts of calls and values.

    Args:
        test: source with `check(candidate)`.
        entry_point: the function that is the candidate.
        solution: the program that is right.

    Raises:
        ConfigError: the solution fails the test, the machine offers no isolation, or a value has no literal.
    """
    program = _PROGRAM.format(solution=solution, test=test, entry_point=entry_point)
    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        done = thread.submit(asyncio.run, _run(program)).result()
    if done.status is not ExecutionStatus.OK:
        said = done.stderr.strip().splitlines()[-1:] or [done.status.value]
        raise ConfigError("column test", f"the published solution does not pass it ({said[0]})", "Leave the row out")
    if not is_stated(done.stdout):
        raise ConfigError("column test", "it compares values that have no literal", "Leave the row out")
    return done.stdout


async def _run(program: str) -> Execution:
    async with PythonSandbox() as sandbox:
        return await sandbox.run(program, timeout_s=_TIMEOUT_S, output_bytes=2**20)


def _is_stated(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.Assert(test=test):
            return isinstance(test, ast.Constant) or _is_stated_test(test)
    return False


def _is_stated_test(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call) | (ast.Call() as call):
            return _is_call(call)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=call, right=right)]), ops=[ast.Lt()]
        ):
            return _is_call(call) and _is_literal(right)
        case ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[value]):
            return _is_call(call) and _is_literal(value)
    return False


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "candidate"


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
