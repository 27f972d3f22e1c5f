"""Registers agent_rl with verl, and applies its patches.

verl loads this module (entry point `verl.plugins`) at the end of `import verl` in every process. Registration must be
cheap there, so each part waits until verl itself imports the module that it extends.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import ModuleType

import wrapt

__all__ = ["register"]


def register() -> None:
    """Register loops, reward manager, tools, the estimator and, if it is chosen, the CPU support. Idempotent."""
    import verl

    from agent_rl.cpu import switch
    from agent_rl.verl_adapter import hooks, patches, spelling

    patches.check_version(verl.__version__)
    spelling.change_command_line()
    if switch.is_selected():
        switch.activate()
        from agent_rl.cpu import platform  # noqa: F401 - the platform registers itself
    for module, action in hooks.hooks():
        _when(module, action)


_hooked: set[str] = set()


def _when(module: str, action: Callable[[ModuleType], None]) -> None:
    """Run the action once, right after verl imports the module (at once if it is imported already)."""
    key = f"{module}:{action.__name__}"
    if key not in _hooked:
        _hooked.add(key)
        wrapt.register_post_import_hook(action, module)


try:
    register()
except Exception:
    # verl logs a failing plugin at debug level only; without this its user would get "unknown agent loop" later.
    print("agent_rl could not register itself with verl:", file=sys.stderr)
    traceback.print_exc()
    raise
