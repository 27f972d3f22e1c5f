"""The built-in tools and toolsets: `x.py` contains the class of the `x` tool, and `_x` contains its internals.

Built-in tools may import the tool contract, the sandbox and the remote client, but not rewards, agents or verl.
"""

import importlib
import pkgutil
from typing import Any

__all__ = ["built_in_class", "built_in_names"]


def built_in_names() -> list[str]:
    """Return the names that a tool file can use without a `class_name`, without importing the tools."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def built_in_class(name: str) -> Any:
    """Return the `Tool` or `Toolset` class for a name from `built_in_names`."""
    module = importlib.import_module(f"{__name__}.{name}")
    return next(value for value in vars(module).values() if isinstance(value, type) and vars(value).get("name") == name)
