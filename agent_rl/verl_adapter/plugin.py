"""The single place that registers agent_rl with verl, and that puts its patches in place.

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
    """Register loops, reward manager, tools, the estimator and, when it is chosen, the CPU backend. Idempotent."""
    import verl

    from agent_rl.cpu import switch
    from agent_rl.verl_adapter import early_checks, failures, late_scoring, local_reward, patches, served_models
    from agent_rl.verl_adapter.algorithms import remax

    patches.check_version(verl.__version__)
    hooks: list[tuple[str, Callable[[ModuleType], None]]] = [
        ("verl.experimental.agent_loop.agent_loop", _install_loops),
        ("verl.experimental.agent_loop.agent_loop", local_reward.score_here),
        ("verl.trainer.constants_ppo", _export_loops),
        ("verl.experimental.reward_loop.reward_manager", _register_reward_manager),
        ("verl.trainer.ppo.core_algos", remax.register_estimator),
        ("verl.utils.config", early_checks.early_checks),
        ("verl.tools.tool_registry", patches.tool_loading),
        ("verl.trainer.ppo.v1.agent_loop_tq", failures.session_errors),
        ("verl.trainer.ppo.v1.replay_buffer", failures.error_stops),
        ("verl.trainer.ppo.v1.trainer_base", patches.reference_pass),
        ("verl.trainer.ppo.v1.trainer_base", patches.step_metrics),
        ("verl.trainer.ppo.v1.trainer_base", failures.filter_limit),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.ask_our_manager),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.awake_in_its_own_pool),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.late_handles),
        ("verl.trainer.ppo.v1.trainer_base", late_scoring.after_sampling),
        ("verl.trainer.ppo.v1.trainer_base", served_models.reward_pools),
        ("verl.trainer.ppo.v1.trainer_separate_async", patches.separate_logging),
    ]
    if switch.is_selected():
        switch.activate()
        from agent_rl.cpu import platform  # noqa: F401 - the platform registers itself
        from agent_rl.cpu.patches import HOOKS

        hooks += HOOKS
    for module, action in hooks:
        _when(module, action)


_hooked: set[str] = set()


def _when(module: str, action: Callable[[ModuleType], None]) -> None:
    """Run the action once, right after verl imports the module (at once if it is imported already)."""
    key = f"{module}:{action.__name__}"
    if key not in _hooked:
        _hooked.add(key)
        wrapt.register_post_import_hook(action, module)


def _install_loops(module: ModuleType) -> None:
    """Agent loops: ours, and those of the user's script."""
    from agent_rl.verl_adapter import loops

    loops.install(module)


def _export_loops(module: ModuleType) -> None:
    """What the user's script has registered, for the workers."""
    from agent_rl.verl_adapter import loops

    loops.export_to_workers(module)


def _register_reward_manager(module: ModuleType) -> None:
    """`reward.reward_manager.name=trajectory`."""
    from agent_rl.verl_adapter import manager  # noqa: F401 - registers itself


try:
    register()
except Exception:
    # verl logs a failing plugin at debug level only; without this its user would meet "unknown agent loop" later.
    print("agent_rl could not register itself with verl:", file=sys.stderr)
    traceback.print_exc()
    raise
