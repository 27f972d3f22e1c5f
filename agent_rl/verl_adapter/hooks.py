"""Lists all registrations with verl and patches of it, one function for each module whose import it waits for."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from agent_rl.cpu import switch
from agent_rl.verl_adapter import early_checks, last_step, patches, spelling
from agent_rl.verl_adapter.algorithms import remax

__all__ = ["Hook", "hooks"]

Hook = tuple[str, Callable[[ModuleType], None]]


def hooks() -> list[Hook]:
    """Loops, reward manager, tools, the estimator, patches and, if it is chosen, the CPU support."""
    own: list[Hook] = [
        ("verl.experimental.agent_loop", patches.moved_names),
        ("verl.experimental.agent_loop.agent_loop", _install_loops),
        ("verl.experimental.reward_loop.reward_manager", _register_reward_manager),
        ("verl.tools.tool_registry", patches.tool_loading),
        ("verl.trainer.constants_ppo", _add_to_environment),
        ("verl.trainer.ppo.core_algos", remax.register_estimator),
        ("verl.trainer.ppo.v1", _extend_trainers),
        ("verl.utils.config", early_checks.early_checks),
        ("verl.utils.device", spelling.change_composed),
        ("verl.utils.torch_functional", _without_flash_attn("token_log_probs")),
        ("verl.utils.tracking", patches.tracking),
        ("verl.workers.engine_workers", patches.policy_loss),
    ]
    if switch.is_selected():
        from agent_rl.cpu.patches import HOOKS

        return [*own, *HOOKS]
    own.append(("verl.models.transformers.qwen2_vl", _without_flash_attn("multimodal_attention")))
    return [*own, ("transformers.modeling_flash_attention_utils", _without_flash_attn("packed_attention"))]


def _without_flash_attn(name: str) -> Callable[[ModuleType], None]:
    """A patch for where flash-attn is not installed; its module imports torch."""

    def patch(module: ModuleType) -> None:
        from agent_rl.verl_adapter import no_flash_attention

        getattr(no_flash_attention, name)(module)

    patch.__name__ = name
    return patch


def _install_loops(module: ModuleType) -> None:
    """Agent loops: ours, and those of the user's script."""
    from agent_rl.verl_adapter import loops

    loops.install(module)


def _add_to_environment(module: ModuleType) -> None:
    """What the workers get: agent loops of the user's script, and the command of the run."""
    from agent_rl.verl_adapter import loops

    loops.export_to_workers(module)
    last_step.keep_command(module.PPO_RAY_RUNTIME_ENV["env_vars"])


def _extend_trainers(module: ModuleType) -> None:
    """Our trainer under verl's names, and what verl's calls by name."""
    from agent_rl.verl_adapter import trainer  # noqa: F401 - registers itself

    patches.trainers(module)


def _register_reward_manager(module: ModuleType) -> None:
    """`reward.reward_manager.name=trajectory`."""
    from agent_rl.verl_adapter import manager  # noqa: F401 - registers itself
