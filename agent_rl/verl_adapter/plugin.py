"""Registers agent_rl with verl, and applies its patches.

verl loads this module (entry point `verl.plugins`) at the end of `import verl` in every process. Registration must be
cheap, so each hook waits until verl itself imports the module that the hook extends.
"""

from __future__ import annotations

import sys
import traceback

import wrapt


def register() -> None:
    """Register the agent loops, reward manager, tools, estimators and, if selected, CPU support."""
    import verl

    from agent_rl.cpu import switch
    from agent_rl.verl_adapter import patches

    patches.check_version(verl.__version__)
    patches.change_command_line()
    if switch.is_selected():
        switch.activate()
        from agent_rl.cpu import platform  # noqa: F401 - the platform registers itself
    for module, action in patches.hooks():
        wrapt.register_post_import_hook(action, module)  # the hook runs at once if the module is already imported


try:
    register()
except Exception:
    # verl logs a failing plugin at debug level only; without this message, only "unknown agent loop" would appear.
    print("agent_rl could not register itself with verl:", file=sys.stderr)
    traceback.print_exc()
    raise
