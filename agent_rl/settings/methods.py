"""Checks a user's class against the base class whose methods agent_rl calls.

The check finds methods whose mistakes Python would report only at the first call in the middle of a run, or never:
agent_rl never calls their name, they cannot take the arguments, or they are not `async def`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_rl.settings.user_code import defined_at, is_users

SIMILAR = 0.8
"""Similarity of two names (difflib's ratio) above which one counts as a misspelling of the other."""


def method_problem(cls: type, base: type) -> tuple[str, str] | None:
    """Return (problem, remedy) for a method that is never called or cannot be called, with file and line, or None.

    Helper methods are allowed. A public method counts as misspelled only if its name resembles the name of a method of
    the base class, and no line in the files that define the user's class mentions it.
    """
    own = [kind for kind in cls.__mro__ if kind not in base.__mro__ and is_users(kind)]
    for owner in own:
        for name, function in _functions(owner):
            what = f"{owner.__qualname__}.{name} ({defined_at(function)})"
            if (expected := _function(base, name)) is not None:
                if problem := _mismatch(owner, name, function, expected):
                    return f"{what} {problem[0]}", problem[1]
            elif (
                not any(name in vars(kind) for kind in cls.__mro__ if kind not in own)
                and (intended := _similar(name, base))
                and not _is_used(name, own)
            ):
                remedy = f"Did you mean {intended!r}? Start the names of your own methods with an underscore"
                return f"{what} is a method that agent_rl never calls", remedy
    return None


def _functions(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions that a class itself defines, and its `__init__`."""
    for name in vars(cls):
        function = _function(cls, name)
        if function is not None and (not name.startswith("_") or name == "__init__"):
            yield name, function


def _function(cls: type, name: str) -> Callable[..., Any] | None:
    value = inspect.getattr_static(cls, name, None)
    value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return inspect.unwrap(value) if inspect.isfunction(value) else None


def _mismatch(owner: type, name: str, function: Callable[..., Any], base: Callable[..., Any]) -> tuple[str, str] | None:
    """Return (problem, remedy) for an override that agent_rl cannot call, otherwise None."""
    parameters = list(inspect.signature(base).parameters.values())
    names = [item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    signature = f"{'async ' * inspect.iscoroutinefunction(base)}def {name}({', '.join(names)})"
    try:
        inspect.signature(function).bind(*names[is_static:])
    except TypeError as error:
        return f"cannot be called with ({', '.join(names[1:])}): {error}", f"Write `{signature}`"
    if inspect.iscoroutinefunction(base) and not inspect.iscoroutinefunction(function):
        return "is not `async def`", f"Write `{signature}`"
    return None


def _similar(name: str, base: type) -> str | None:
    """Return the base's method whose name is similar to a user's public method, or None."""
    known = (method for cls in base.__mro__[:-1] for method, _ in _functions(cls) if not method.startswith("_"))
    plain = {method.replace("_", ""): method for method in known}
    matches = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=SIMILAR)
    return plain[matches[0]] if matches else None


def _is_used(name: str, classes: Iterable[type]) -> bool:
    """Whether a file with the user's classes uses the method or quotes its name."""
    mention = re.compile(rf"\.{name}\b|['\"]{name}['\"]")
    try:
        files = {inspect.getsourcefile(kind) for kind in classes}
        return any(mention.search(Path(file).read_text(encoding="utf-8")) for file in files if file)
    except (OSError, TypeError):  # defined at run time
        return False
