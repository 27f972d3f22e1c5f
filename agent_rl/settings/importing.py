"""Imports the classes and functions to which a configuration refers.

A reference is a dotted path (`my_package.tools.Search`) or a user's file (`my_tools.py:Search`). A file is loaded
under a module name derived from its path, so every reference to it yields the same module.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.methods import method_problem
from agent_rl.settings.user_code import defined_at, place_of


def find_object(name: str, place: Place, folder: Path | None = None, *, known: Iterable[str] = ()) -> Any:
    """Return a module's attribute.

    Args:
        name: `package.module.Name`, or `path/to/file.py:Name`.
        place: the name's location in the configuration.
        folder: the folder for relative paths; the working directory is tried next.
        known: the short names allowed at this location; if `name` is neither short nor a path, the remedy lists them.

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
    """Return a class derived from one of these bases; see `find_object` for the other arguments.

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
    """Import the modules and folders of a package, so that their declarations are registered."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _import(name: str, place: Place) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error, place) from error
        remedy = "Check the spelling and that it is installed, or give your own file as path/to/file.py:Class"
        parent, _, child = error.name.rpartition(".")
        if siblings := getattr(sys.modules.get(parent), "__path__", None):
            remedy = f"{did_you_mean(child, (module.name for module in pkgutil.iter_modules(siblings)))} {remedy}"
        raise place.error(f"there is no module {error.name!r}", remedy) from error
    except Exception as error:  # any import failure is reported to the author of the configuration
        raise _failed(name, error, place) from error


def load_file(location: str, folder: Path, place: Place) -> ModuleType:
    """Import a file, relative to the folder or the working directory, once in a process.

    Raises:
        ConfigError: there is no such file, or importing it fails.
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
    sys.modules[name] = module  # before it runs: dataclasses and pickle look the module up
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
