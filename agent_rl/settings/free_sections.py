"""The configuration sections whose keys verl's YAML files do not list."""

from __future__ import annotations

FREE = (
    "agent_rl",  # `AgentRLSettings` rejects unknown keys
    "ray_kwargs.ray_init",
    "actor_rollout_ref.model.override_config",
    "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs",
    "actor_rollout_ref.rollout.engine_kwargs",
    "critic.model.override_config",
    "data.apply_chat_template_kwargs",
    "data.mm_processor_kwargs",
    "reward.custom_reward_function.reward_kwargs",
    "reward.reward_kwargs",
    "reward.reward_model.rollout.engine_kwargs",
    "trainer.v1.sampler.sampler_kwargs",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "critic.fsdp.mixed_precision",
)
"""Sections that accept any key, or that verl's YAML omits: for agent_rl, Ray, transformers, engines, torch, chat
templates and reward functions."""


def is_free(key: str) -> bool:
    """Whether the key is one of the `FREE` sections, or inside one."""
    return any(f"{key}.".startswith(f"{section}.") for section in FREE)
