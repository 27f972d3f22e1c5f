"""The single place that registers agent_rl with verl, and that puts its patches in place.

verl loads this module (entry point `verl.plugins`) at the end of `import verl` in every process. Registration must be
cheap there, so each part waits until verl itself imports the module that it extends.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

__all__ = ["register"]


def register() -> None:
    """Register loops, reward manager, tools, the estimator and, when it is chosen, the CPU backend. Idempotent."""
    import verl

    from agent_rl.cpu import switch as cpu
    from agent_rl.verl_adapter import failures, late_scoring, local_reward, patches, served_models
    from agent_rl.verl_adapter.algorithms import remax

    patches.check_version(verl.__version__)
    _when("verl.experimental.agent_loop.agent_loop", _install_loops)
    _when("verl.experimental.agent_loop.agent_loop", local_reward.score_here)
    _when("verl.trainer.constants_ppo", _export_loops)
    _when("verl.experimental.reward_loop.reward_manager", _register_reward_manager)
    _when("verl.trainer.ppo.core_algos", remax.register_estimator)
    _when("verl.utils.config", patches.early_checks)
    _when("verl.tools.tool_registry", patches.tool_loading)
    _when("verl.trainer.ppo.v1.agent_loop_tq", failures.session_errors)
    _when("verl.trainer.ppo.v1.replay_buffer", failures.error_stops)
    _when("verl.trainer.ppo.v1.trainer_base", patches.reference_pass)
    _when("verl.trainer.ppo.v1.trainer_base", patches.step_metrics)
    _when("verl.trainer.ppo.v1.trainer_base", failures.filter_limit)
    _when("verl.experimental.reward_loop.reward_loop", late_scoring.ask_our_manager)
    _when("verl.experimental.reward_loop.reward_loop", late_scoring.awake_in_its_own_pool)
    _when("verl.experimental.reward_loop.reward_loop", late_scoring.late_handles)
    _when("verl.trainer.ppo.v1.trainer_base", late_scoring.after_sampling)
    _when("verl.trainer.ppo.v1.trainer_base", served_models.reward_pools)
    _when("verl.trainer.ppo.v1.trainer_separate_async", patches.separate_logging)
    if cpu.is_selected():
        cpu.activate()
        from agent_rl.cpu import (
            platform,  # noqa: F401 - the platform registers itself
            speed,
        )

        _when("verl.utils.distributed", patches.gloo_process_group)
        _when("verl.utils.model", patches.value_head_attention)
        _when("verl.trainer.ppo.v1.replay_buffer", speed.replay_buffer_polling)
        _when("verl.utils.torch_functional", speed.token_log_probs)
        _when("verl.workers.rollout.llm_server", speed.single_server)
        _when("verl.experimental.agent_loop.agent_loop", speed.loop_construction)
        _when("verl.trainer.ppo.v1.agent_loop_tq", speed.trajectory_puts)
        _when("verl.workers.engine.fsdp.transformer_impl", _register_cpu_engines)
        _when("verl.workers.rollout.base", _register_cpu_rollout)
        _when("verl.workers.rollout.replica", _register_cpu_server)
        _when("verl.checkpoint_engine", _register_shared_memory)


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


def _register_cpu_engines(module: ModuleType) -> None:
    """Training engines for the device `cpu`."""
    from agent_rl.cpu import engine  # noqa: F401 - registers itself


def _register_cpu_rollout(module: ModuleType) -> None:
    """The weight transport of the CPU, under the name that verl looks up."""
    module._ROLLOUT_REGISTRY[("sglang", "async")] = "agent_rl.cpu.rollout.CPUServerAdapter"


def _register_cpu_server(module: ModuleType) -> None:
    """The server of the CPU, under the name that verl looks up."""

    def load() -> Any:
        module._load_sglang()  # what its imports need
        from agent_rl.cpu.server import CPUReplica

        return CPUReplica

    module.RolloutReplicaRegistry.register("sglang", load)


def _register_shared_memory(module: ModuleType) -> None:
    """Weights for standalone rollout servers, in place of verl's engine `nccl`."""
    from agent_rl.cpu import shared_memory  # noqa: F401 - registers itself


try:
    register()
except Exception:
    # verl logs a failing plugin at debug level only; without this its user would meet "unknown agent loop" later.
    print("agent_rl could not register itself with verl:", file=sys.stderr)
    traceback.print_exc()
    raise
