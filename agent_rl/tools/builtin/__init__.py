"""The built-in tools and toolsets: the public module `x.py` has the class of the tool `x`, `_x` its internals.

They know the contract of tools, the sandbox and outgoing calls; they must not know rewards, agents or verl.
"""

import importlib
import pkgutil
from typing import Any

__all__ = ["built_in_class", "built_in_names"]


def built_in_names() -> list[str]:
    """The names that a tool file can use without a `class_name`; nothing is imported for them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def built_in_class(name: str) -> Any:
    """The `Tool` or `Toolset` of one of `built_in_names`."""
    module = importlib.import_module(f"{__name__}.{name}")
    return next(found for found in vars(module).values() if isinstance(found, type) and vars(found).get("name") == name)
