"""Finding what a configuration names: a class or a function.

Two forms: a dotted path (`my_package.tools.Search`) and a file of one's own (`my_tools.py:Search`). A file is loaded
under a module name that is made from its path, so that it is the same module however often it is asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_rl.errors import did_you_mean

__all__ = ["ClassNameError", "find_object", "import_all"]


class ClassNameError(Exception):
    """What is named cannot be had; carries what the loader needs to say so."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


def find_object(path: str, folder: Path) -> Any:
    """A module's attribute.

    Args:
        path: `package.module.Name`, or `path/to/file.py:Name`.
        folder: where a relative path starts; the working directory is tried next.

    Raises:
        ClassNameError: when the module or the attribute is missing, or importing the module fails.
    """
    location, _, attribute = path.rpartition(":")
    if location.endswith(".py"):
        module = _load_file(location, folder)
    else:
        location, _, attribute = path.rpartition(".")
        if not location or not all(part.isidentifier() for part in path.split(".")):
            raise ClassNameError(
                f"{path!r} is not an import path", "Write package.module.Class, or path/to/file.py:Class"
            )
        module = _import(location)
    try:
        return getattr(module, attribute)
    except AttributeError:
        known = [name for name, value in vars(module).items() if callable(value)]
        own = [name for name in known if getattr(vars(module)[name], "__module__", None) == module.__name__]
        raise ClassNameError(f"{location!r} has no {attribute!r}", did_you_mean(attribute, own or known)) from None


def import_all(package: str) -> None:
    """Import the modules and folders of a package, so that what they declare is known."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ClassNameError(f"there is no module {error.name!r}", _module_remedy(error.name)) from error
        raise _failed(name, error) from error
    except Exception as error:  # whatever the module does while it is imported goes to the author of the YAML file
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ClassNameError:
    problem = f"importing {name!r} failed: {type(error).__name__}: {error}"
    return ClassNameError(problem, "Mend the module, or install what it needs")


def _module_remedy(name: str) -> str:
    remedy = "Check the spelling and that it is installed, or name a file of your own as path/to/file.py:Class"
    parent, _, child = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", None)
    if not path:
        return remedy
    return f"{did_you_mean(child, (module.name for module in pkgutil.iter_modules(path)))} {remedy}"


def _load_file(location: str, folder: Path) -> ModuleType:
    path = Path(location).expanduser()
    tried = list(dict.fromkeys(base.resolve() for base in (folder / path, Path.cwd() / path)))
    found = next((candidate for candidate in tried if candidate.is_file()), None)
    if found is None:
        nearest = did_you_mean(path.name, (near.name for near in tried[0].parent.glob("*.py")))
        raise ClassNameError(f"there is no file {' or '.join(map(str, tried))}", nearest)
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
        raise _failed(str(found), error) from error
    return module
