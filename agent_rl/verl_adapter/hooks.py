"""Lists all registrations with verl and patches of it, each with the module whose import it waits for."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from agent_rl.cpu import switch
from agent_rl.verl_adapter import (
    early_checks,
    engine_arguments,
    failures,
    kept_batches,
    last_step,
    late_scoring,
    local_reward,
    mini_batches,
    old_loops,
    one_update,
    ordering,
    patches,
    served_models,
    sinks,
    spelling,
    stages,
    stalls,
    trained_samples,
)
from agent_rl.verl_adapter.algorithms import remax

__all__ = ["Hook", "hooks"]

Hook = tuple[str, Callable[[ModuleType], None]]


def hooks() -> list[Hook]:
    """Loops, reward manager, tools, the estimator, patches and, if it is chosen, the CPU support."""
    found: list[Hook] = [
        ("verl.experimental.agent_loop.agent_loop", _install_loops),
        ("verl.experimental.agent_loop.agent_loop", local_reward.score_here),
        ("verl.experimental.agent_loop.agent_loop", old_loops.give_messages),
        ("verl.experimental.agent_loop.agent_loop", old_loops.name_what_moved),
        ("verl.experimental.agent_loop", old_loops.name_what_moved),
        ("verl.trainer.constants_ppo", _export_loops),
        ("verl.trainer.constants_ppo", last_step.keep_command),
        ("verl.trainer.constants_ppo", stages.tell_ray),
        ("verl.experimental.reward_loop.reward_manager", _register_reward_manager),
        ("verl.trainer.ppo.core_algos", remax.register_estimator),
        ("verl.trainer.main_ppo", spelling.change_main),
        ("verl.utils.device", spelling.change_composed),
        ("verl.utils.tracking", sinks.separate_sinks),
        ("verl.utils.config", early_checks.early_checks),
        ("verl.tools.tool_registry", patches.tool_loading),
        ("verl.utils.model", _without_flash_attn("value_head_attention")),
        ("verl.utils.torch_functional", _without_flash_attn("token_log_probs")),
        ("verl.experimental.agent_loop.agent_loop", failures.outputs_of_sessions),
        ("verl.trainer.ppo.v1.agent_loop_tq", failures.session_errors),
        ("verl.trainer.ppo.v1.replay_buffer", failures.error_stops),
        ("verl.trainer.ppo.v1.replay_buffer", last_step.ask_while_waiting),
        ("verl.trainer.ppo.v1.trainer_base", patches.reference_pass),
        ("verl.trainer.ppo.v1.trainer_base", mini_batches.even_mini_batches),
        ("verl.trainer.ppo.v1.trainer_base", one_update.leave_out_pass),
        ("verl.workers.engine_workers", one_update.detached_log_probs),
        ("verl.trainer.ppo.v1.trainer_base", trained_samples.leave_out_lone),
        ("verl.trainer.ppo.v1.trainer_base", trained_samples.compare_trajectories),
        ("verl.trainer.ppo.v1.trainer_base", trained_samples.validate_survivors),
        ("verl.trainer.ppo.v1.trainer_base", trained_samples.accept_empty_batches),
        ("verl.workers.rollout.sglang_rollout.async_sglang_server", engine_arguments.rename_arguments),
        ("verl.trainer.ppo.v1.trainer_base", patches.step_metrics),
        ("verl.trainer.ppo.v1.trainer_base", patches.rollouts),
        ("verl.trainer.ppo.v1.trainer_base", kept_batches.keep_batches),
        ("verl.trainer.ppo.v1.trainer_base", failures.filter_limit),
        ("verl.trainer.ppo.v1.trainer_base", stages.tell_parts),
        ("verl.trainer.ppo.v1.trainer_base", stalls.stop_stalled),
        ("verl.trainer.ppo.v1.trainer_base", last_step.save_at_stop),
        ("verl.trainer.ppo.v1.trainer_base", ordering.order_rows),  # a report that fails comes after a complete step
        ("verl.trainer.ppo.v1.replay_buffer", ordering.report_removed),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.ask_our_manager),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.awake_in_its_own_pool),
        ("verl.experimental.reward_loop.reward_loop", late_scoring.late_handles),
        ("verl.trainer.ppo.v1.trainer_base", late_scoring.after_sampling),
        ("verl.trainer.ppo.v1.trainer_base", served_models.reward_pools),
        ("verl.trainer.ppo.v1.trainer_separate_async", patches.separate_logging),
    ]
    if switch.is_selected():
        from agent_rl.cpu.patches import HOOKS

        return [*found, *HOOKS]
    models = "verl.models.transformers"
    found += [(f"{models}.{name}", _without_flash_attn("multimodal_attention")) for name in ("qwen2_vl", "glm4v")]
    return [*found, ("transformers.modeling_flash_attention_utils", _without_flash_attn("packed_attention"))]


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


def _export_loops(module: ModuleType) -> None:
    """Agent loops of the user's script, for the workers."""
    from agent_rl.verl_adapter import loops

    loops.export_to_workers(module)


def _register_reward_manager(module: ModuleType) -> None:
    """`reward.reward_manager.name=trajectory`."""
    from agent_rl.verl_adapter import manager  # noqa: F401 - registers itself
