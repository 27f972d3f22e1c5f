"""Checks a user's class against the base class whose methods agent_rl calls.

What Python would only report at the first call, in the middle of a run, or never: a method under a name that nothing
calls, one that cannot take the arguments, one that is not `async def`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_rl.settings.user_code import defined_at, is_users

__all__ = ["method_problem"]

SIMILAR = 0.8
"""Of two names, as difflib measures it, above which one is taken for a misspelling of the other."""


def method_problem(cls: type, base: type) -> tuple[str, str] | None:
    """(problem, remedy) of a method that would never be called or cannot be, with file and line; None: there is none.

    Helper methods are the user's own business. A public one counts as misspelled only if its name is similar to one of
    the base class and no line in the user's files of this class names it.
    """
    own = [each for each in cls.__mro__ if each not in base.__mro__ and is_users(each)]
    for owner in own:
        for name, function in _functions(owner):
            what = f"{owner.__qualname__}.{name} ({defined_at(function)})"
            if (expected := _function(base, name)) is not None:
                if problem := _mismatch(owner, name, function, expected):
                    return f"{what} {problem[0]}", problem[1]
            elif (
                not any(name in vars(each) for each in cls.__mro__ if each not in own)
                and (near := _meant(name, base))
                and not _is_used(name, own)
            ):
                remedy = f"Did you mean {near!r}? Start the name of a method of your own with an underscore"
                return f"{what} is a method that nothing calls", remedy
    return None


def _functions(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that a class itself defines, and its `__init__`."""
    for name in vars(cls):
        function = _function(cls, name)
        if function is not None and (not name.startswith("_") or name == "__init__"):
            yield name, function


def _function(cls: type, name: str) -> Callable[..., Any] | None:
    found = inspect.getattr_static(cls, name, None)
    found = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    return inspect.unwrap(found) if inspect.isfunction(found) else None


def _mismatch(owner: type, name: str, function: Callable[..., Any], base: Callable[..., Any]) -> tuple[str, str] | None:
    """(what is wrong, remedy) of an override."""
    parameters = list(inspect.signature(base).parameters.values())
    given = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    written = f"{'async ' * inspect.iscoroutinefunction(base)}def {name}({', '.join(given)})"
    try:
        inspect.signature(function).bind(*given[is_static:])
    except TypeError as error:
        return f"cannot be called with ({', '.join(given[1:])}): {error}", f"Write `{written}`"
    if inspect.iscoroutinefunction(base) and not inspect.iscoroutinefunction(function):
        return "is not `async def`", f"Write `{written}`"
    return None


def _meant(name: str, base: type) -> str | None:
    """The base's method that a public method of the user's was meant to be."""
    known = (each for cls in base.__mro__[:-1] for each, _ in _functions(cls) if not each.startswith("_"))
    plain = {each.replace("_", ""): each for each in known}
    near = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=SIMILAR)
    return plain[near[0]] if near else None


def _is_used(name: str, classes: Iterable[type]) -> bool:
    """Whether a file of the user's classes reads the method or quotes its name."""
    used = re.compile(rf"\.{name}\b|['\"]{name}['\"]")
    try:
        files = {inspect.getsourcefile(each) for each in classes}
        return any(used.search(Path(file).read_text(encoding="utf-8")) for file in files if file)
    except (OSError, TypeError):  # made at run time
        return False
