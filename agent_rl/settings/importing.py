"""Imports the classes and functions to which a configuration refers, and checks a class against its base class.

A reference is a dotted path (`my_package.tools.Search`) or a user's file (`my_tools.py:Search`). A file is loaded
under a module name derived from its path, so every reference to it yields the same module.

Checking a class finds mistakes that Python would report only in the middle of a run, or never: a method whose name
agent_rl never calls, whose signature does not accept the arguments, or that lacks `async def`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.user_code import defined_at, is_users, place_of


def find_object(name: str, place: Place, folder: Path | None = None, *, known: Iterable[str] = ()) -> Any:
    """Return the class, function or other object that a reference names.

    Args:
        name: `package.module.Name`, or `path/to/file.py:Name`.
        place: the name's location in the configuration.
        folder: the folder for relative paths; the working directory is tried next.
        known: the short names allowed at this location; the remedy for an unknown short name suggests one of them.

    Raises:
        ConfigError: the module or the attribute is missing, or importing the module fails.
    """
    if known and "." not in name:
        raise place.error(f"there is no {place.key.rpartition('.')[2].lstrip('-')} {name!r}", did_you_mean(name, known))
    location, _, attribute = name.rpartition(":")
    if location.endswith(".py"):
        module = load_file(location, folder or Path.cwd(), place)
    else:
        location, _, attribute = name.rpartition(".")
        if not location or not all(part.isidentifier() for part in name.split(".")):
            raise place.error(f"{name!r} is not an import path", "Write package.module.Class, or path/to/file.py:Class")
        module = _import(location, place)
    try:
        return getattr(module, attribute)
    except AttributeError:
        known = [name for name, value in vars(module).items() if callable(value)]
        own = [name for name in known if getattr(vars(module)[name], "__module__", None) == module.__name__]
        raise place.error(f"{location!r} has no {attribute!r}", did_you_mean(attribute, own or known)) from None


def find_class(
    name: str, bases: type | tuple[type, ...], place: Place, folder: Path | None = None, *, known: Iterable[str] = ()
) -> Any:
    """Return a class that derives from one of `bases`; see `find_object` for the other arguments.

    Raises:
        ConfigError: the class is missing, is not a subclass, leaves a method undefined, or has a method that cannot be
            called or that agent_rl never calls.
    """
    value = find_object(name, place, folder, known=known)
    bases = bases if isinstance(bases, tuple) else (bases,)
    if not (isinstance(value, type) and issubclass(value, bases)):
        expected = " or ".join(f"{base.__module__}.{base.__qualname__}" for base in bases)
        kind = "" if isinstance(value, type) else f"a {type(value).__name__}, "
        remedy = f"Derive it from {' or '.join(base.__name__ for base in bases)}"
        raise place.error(f"{name!r} is {kind}not a subclass of {expected}", remedy)
    if missing := sorted(getattr(value, "__abstractmethods__", ())):
        remedy = "Define it, or use a subclass that does"
        raise place.error(f"{name!r} ({defined_at(value)}) does not define {', '.join(missing)}", remedy)
    for base in bases:
        if issubclass(value, base) and (problem := method_problem(value, base)):
            raise place.error(*problem)
    return value


def import_all(package: str) -> None:
    """Import the modules and subpackages of a package, so that their declarations are registered."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _import(name: str, place: Place) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error, place) from error
        remedy = "Check the spelling, install the package, or name your own file: path/to/file.py:Class"
        parent, _, child = error.name.rpartition(".")
        if siblings := getattr(sys.modules.get(parent), "__path__", None):
            remedy = f"{did_you_mean(child, (module.name for module in pkgutil.iter_modules(siblings)))} {remedy}"
        raise place.error(f"there is no module {error.name!r}", remedy) from error
    except Exception as error:  # any import failure is reported to the author of the configuration
        raise _failed(name, error, place) from error


def load_file(location: str, folder: Path, place: Place) -> ModuleType:
    """Import a Python file once per process; a relative path is looked up in `folder`, then in the working directory.

    Raises:
        ConfigError: the file does not exist, or importing it fails.
    """
    path = Path(location).expanduser()
    candidates = list(dict.fromkeys(base.resolve() for base in (folder / path, Path.cwd() / path)))
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        nearest = did_you_mean(path.name, (other.name for other in candidates[0].parent.glob("*.py")))
        raise place.error(f"there is no file {' or '.join(map(str, candidates))}", nearest)
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    name = f"agent_rl_user_{re.sub('[^A-Za-z0-9_]', '_', file.stem)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # registered before execution, because dataclasses and pickle look up the module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # any import failure is reported to the author of the configuration
        del sys.modules[name]
        raise _failed(str(file), error, place) from error
    return module


def _failed(name: str, error: Exception, place: Place) -> ConfigError:
    """Return the error for a failed import, with the last line of the user's code that ran."""
    problem = f"importing {name!r} failed at {place_of(error)}: {type(error).__name__}: {error}"
    return place.error(problem, "Fix the module, or install what it needs")


SIMILAR = 0.8
"""Similarity of two names (difflib's ratio) above which one counts as a misspelling of the other."""


def method_problem(cls: type, base: type) -> tuple[str, str] | None:
    """Return (problem, remedy) for a method that agent_rl never calls or cannot call, or None if all methods fit.

    Helper methods are allowed. A public method counts as misspelled only if its name resembles that of a method of the
    base class, and if the files that define the user's class neither use nor quote the name.
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
    """Return the name of the base-class method that is most similar to the given name, or None."""
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
