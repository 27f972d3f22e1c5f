"""Placeholders for names of GPU-only packages, which can be imported and used as decorators, but not called.

The stand-ins for GPU-only packages consist of placeholders. Importing SGLang on a CPU touches many names of `triton`,
`sgl_kernel` and `torchvision` without ever calling them; a call means that a GPU code path was taken by mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


class Placeholder:
    """A name of a GPU-only package: attributes and subscripts return more placeholders, and a call raises an error."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: D102 - documented in the class
        raise RuntimeError(
            f"{self.__name__} was called, but this process runs SGLang on a CPU with stand-ins for GPU-only packages. "
            "Choose the CPU engine flags in agent_rl/config/platform/cpu.yaml, or run without VERL_PLATFORM=cpu"
        )

    def __getattr__(self, name: str) -> Placeholder:
        return placeholders_of(self.__name__)(name)

    def __getitem__(self, key: Any) -> Placeholder:
        return Placeholder(f"{self.__name__}[{key!r}]")

    def __repr__(self) -> str:
        return f"<placeholder {self.__name__}>"


def placeholder_jit(function: Any = None, **options: Any) -> Any:
    """Stand-in for `triton.jit` and similar decorators, which are used with or without options."""
    if function is None:
        return placeholder_jit
    return Placeholder(getattr(function, "__qualname__", repr(function)))


def placeholders_of(module: str) -> Callable[[str], Placeholder]:
    """Return the `__getattr__` of a module in which every name is a placeholder."""

    def get(name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{module}.{name}")

    return get


def add_module(name: str, values: Mapping[str, Any] | None = None, *, more: bool = False) -> None:
    """Add a module to an imported package.

    Args:
        name: the full name, including the package.
        values: the module's contents; if None, every name in the module is a placeholder.
        more: whether names that are missing in `values` become placeholders.
    """
    module = sys.modules[name] = ModuleType(name, "Stand-in.")
    module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
    module.__dict__.update(values or {})
    if values is None or more:
        module.__getattr__ = placeholders_of(name)  # type: ignore[method-assign]
    parent, _, own = name.rpartition(".")
    setattr(sys.modules[parent], own, module)
