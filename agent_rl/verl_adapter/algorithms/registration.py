"""Registers agent_rl's estimators with verl, and prevents verl's losses from being replaced silently."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.algorithms import maxrl, remax, turns


def register(module: ModuleType) -> None:
    """`verl.trainer.ppo.core_algos`: add agent_rl's estimators, and reject a second policy loss with the same name."""
    remax.register_estimator(module)
    maxrl.register_estimator(module)
    for name in turns.BY_TURN:
        module.register_adv_est(name)(functools.partial(_by_row, name))
    original, losses = module.register_policy_loss, module.POLICY_LOSS_REGISTRY

    @functools.wraps(original)
    def register_policy_loss(name: str) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            known = losses.get(name, function)
            if (known.__module__, known.__qualname__) != (function.__module__, function.__qualname__):
                problem = f"{function.__module__}.{function.__qualname__} would replace {known.__module__}'s {name!r}"
                raise ConfigError("register_policy_loss", problem, "Choose another name")
            return original(name)(function)

        return add

    module.register_policy_loss = register_policy_loss  # type: ignore[attr-defined]


def _by_row(name: str, token_level_rewards: Any, response_mask: Any, index: Sequence[str], **options: Any) -> Any:
    """Estimate advantages for calls in which verl passes no row keys; each row is treated as one trajectory."""
    tensors = {"token_level_rewards": token_level_rewards, "response_mask": response_mask}
    data = SimpleNamespace(batch=tensors, non_tensor_batch={}, meta_info={})
    keys = [f"{uid}_{row}_0" for row, uid in enumerate(index)]
    advantages = turns.turn_level_advantages(data, keys, name, **options).batch["advantages"]
    return advantages, advantages
