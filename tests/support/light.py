"""Unit tests import neither the trainer nor what it stands on: with `--light`, a test that does fails and says so."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

HEAVY = frozenset({"verl", "torch", "ray", "transformers", "sglang"})


class HeavyImportError(Exception):
    """Not an ImportError, which a library that can do without the module would catch."""


class Refusing(importlib.abc.Loader):
    """Loads nothing."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        raise HeavyImportError(
            f"a unit test imports {spec.name}: mark it with @pytest.mark.trainer, or import it where it is needed only"
        )

    def exec_module(self, module: ModuleType) -> None:
        """Never called."""


class Guard(importlib.abc.MetaPathFinder):
    """Finds the heavy modules as ever, so that one may ask whether they are installed, and refuses to load them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in HEAVY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = Refusing()
        return spec


def install() -> None:
    loaded = sorted(HEAVY & sys.modules.keys())
    if loaded:
        raise HeavyImportError(f"{', '.join(loaded)} is loaded before the first test")
    sys.meta_path.insert(0, Guard())
