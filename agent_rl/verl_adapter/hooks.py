"""Lists all registrations with verl and patches of it, one function for each module whose import it waits for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from agent_rl.cpu import switch
from agent_rl.verl_adapter import early_checks, patches, spelling
from agent_rl.verl_adapter.algorithms import remax

__all__ = ["Hook", "hooks"]

Hook = tuple[str, Callable[[ModuleType], None]]


def hooks() -> list[Hook]:
    """Loops, reward manager, tools, the estimator, patches and, if it is chosen, the CPU support."""
    own: list[Hook] = [
        ("verl.experimental.agent_loop", patches.moved_names),
        ("verl.experimental.agent_loop.agent_loop", _later("loops", "install")),
        ("verl.experimental.reward_loop.reward_manager", patches.reward_managers),
        ("verl.tools.tool_registry", _later("verl_tools", "tool_loading")),
        ("verl.trainer.constants_ppo", patches.environment),
        ("verl.trainer.ppo.core_algos", remax.register_estimator),
        ("verl.trainer.ppo.v1", patches.trainers),
        ("verl.utils.config", early_checks.early_checks),
        ("verl.utils.device", spelling.change_composed),
        ("verl.utils.torch_functional", _later("no_flash_attention", "token_log_probs")),
        ("verl.utils.tracking", _later("sinks", "tracking")),
        ("verl.workers.engine_workers", _later("one_update", "policy_loss")),
    ]
    if switch.is_selected():
        from agent_rl.cpu.patches import HOOKS

        return [*own, *HOOKS]
    own.append(("verl.models.transformers.qwen2_vl", _later("no_flash_attention", "multimodal_attention")))
    return [*own, ("transformers.modeling_flash_attention_utils", _later("no_flash_attention", "packed_attention"))]


def _later(module: str, name: str) -> Callable[[ModuleType], None]:
    """A function of a module here that is not imported before: it imports what its hook waits for, or torch."""

    def patch(verls: ModuleType) -> None:
        getattr(import_module(f"agent_rl.verl_adapter.{module}"), name)(verls)

    return patch
