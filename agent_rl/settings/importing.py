"""Finding what a configuration names: a class or a function.

Two forms: a dotted path (`my_package.tools.Search`) and a file of the user (`my_tools.py:Search`). A file is loaded
under a module name that is made from its path, so it is the same module however often it is named.
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

__all__ = ["find_class", "find_object", "import_all"]


def find_object(name: str, place: Place, folder: Path | None = None, *, known: Iterable[str] = ()) -> Any:
    """A module's attribute.

    Args:
        name: `package.module.Name`, or `path/to/file.py:Name`.
        place: of the name in the configuration.
        folder: where a relative path starts; the working directory is tried next.
        known: the short names that may stand at this place, for the remedy when a name is neither of them nor a path.

    Raises:
        ConfigError: the module or the attribute is missing, or importing the module fails.
    """
    if known and "." not in name:
        raise place.error(f"there is no {place.key.rpartition('.')[2].lstrip('-')} {name!r}", did_you_mean(name, known))
    location, _, attribute = name.rpartition(":")
    if location.endswith(".py"):
        module = _load_file(location, folder or Path.cwd(), place)
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
    """A class of one of these bases, found as by `find_object`.

    Raises:
        ConfigError: also when it is no such class, leaves a method undefined, or has one that cannot be called or that
            nothing calls.
    """
    found = find_object(name, place, folder, known=known)
    bases = bases if isinstance(bases, tuple) else (bases,)
    if not (isinstance(found, type) and issubclass(found, bases)):
        wanted = " or ".join(f"{base.__module__}.{base.__qualname__}" for base in bases)
        kind = "" if isinstance(found, type) else f"a {type(found).__name__}, "
        remedy = f"Derive it from {' or '.join(base.__name__ for base in bases)}"
        raise place.error(f"{name!r} is {kind}not a subclass of {wanted}", remedy)
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        remedy = "Define it, or name a subclass that does"
        raise place.error(f"{name!r} ({defined_at(found)}) does not define {', '.join(missing)}", remedy)
    for base in bases:
        if issubclass(found, base) and (problem := method_problem(found, base)):
            raise place.error(*problem)
    return found


def import_all(package: str) -> None:
    """Import the modules and folders of a package, so that what they declare is known."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _import(name: str, place: Place) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error, place) from error
        remedy = "Check the spelling and that it is installed, or name a file of your own as path/to/file.py:Class"
        parent, _, child = error.name.rpartition(".")
        if siblings := getattr(sys.modules.get(parent), "__path__", None):
            remedy = f"{did_you_mean(child, (module.name for module in pkgutil.iter_modules(siblings)))} {remedy}"
        raise place.error(f"there is no module {error.name!r}", remedy) from error
    except Exception as error:  # whatever the module does while it is imported goes to the author of the configuration
        raise _failed(name, error, place) from error


def _load_file(location: str, folder: Path, place: Place) -> ModuleType:
    path = Path(location).expanduser()
    tried = list(dict.fromkeys(base.resolve() for base in (folder / path, Path.cwd() / path)))
    found = next((candidate for candidate in tried if candidate.is_file()), None)
    if found is None:
        nearest = did_you_mean(path.name, (near.name for near in tried[0].parent.glob("*.py")))
        raise place.error(f"there is no file {' or '.join(map(str, tried))}", nearest)
    digest = hashlib.sha256(str(found).encode()).hexdigest()[:8]
    name = f"agent_rl_user_{re.sub('[^A-Za-z0-9_]', '_', found.stem)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, found)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look the module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # as in _import
        del sys.modules[name]
        raise _failed(str(found), error, place) from error
    return module


def _failed(name: str, error: Exception, place: Place) -> ConfigError:
    """The error of an import that raised, with the last line of the user's own code that ran."""
    problem = f"importing {name!r} failed at {place_of(error)}: {type(error).__name__}: {error}"
    return place.error(problem, "Fix the module, or install what it needs")
