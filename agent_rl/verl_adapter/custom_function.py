"""Loads the function of `reward.custom_reward_function` as verl does, and calls it regardless of its signature."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.rewards.user_function import CUSTOM_FUNCTION, NAMES, UserFunction
from agent_rl.settings.errors import Place
from agent_rl.settings.user_code import place_of

MANAGER = "trajectory"
MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
"""Keyword arguments that verl adds when it serves a reward model."""


def user_function(loaded: Any, more: Collection[str]) -> UserFunction:
    """Return the user's function, which verl wraps in a partial to add `reward_kwargs`.

    Args:
        loaded: the result of verl's `get_custom_reward_fn`.
        more: names of additional keyword arguments that every call passes.

    Raises:
        ConfigError: the function cannot be called.
    """
    raw, options = loaded.args
    return UserFunction(raw, Place(f"{CUSTOM_FUNCTION}.name"), options=options, more=more)


def check(config: Any) -> UserFunction | None:
    """Load the custom function, and raise an error if it cannot be called.

    Args:
        config: the trainer's whole configuration.

    Returns:
        The function if the `trajectory` manager calls it without a reward model, otherwise None.

    Raises:
        ConfigError: the function cannot be loaded, or the reward manager cannot call it.
    """
    from verl.trainer.ppo.reward import get_custom_reward_fn

    path, name = config.reward.custom_reward_function.path, config.reward.custom_reward_function.name
    if not path:
        return None
    try:
        loaded: Any = get_custom_reward_fn(config)
    except Exception as error:  # verl and the user's file may raise any exception
        cause = error.__cause__ or error
        where = f" at {place_of(cause)}" if str(path) in place_of(cause) else ""
        problem = f"{name!r} cannot be loaded from {path}{where}: {type(cause).__name__}: {cause}"
        raise ConfigError(CUSTOM_FUNCTION, problem, f"Fix the file, or set {CUSTOM_FUNCTION}.path and .name") from error
    more = MODEL_ARGUMENTS if config.reward.reward_model.enable else ()
    function = user_function(loaded, more)
    manager, raw = config.reward.reward_manager.name, loaded.args[0]
    if manager == MANAGER:
        return None if more else function
    try:  # verl's own managers pass all arguments by keyword
        inspect.signature(raw).bind(**{**dict.fromkeys((*NAMES, *more)), **loaded.args[1]})
    except TypeError as error:
        problem = f"{raw.__name__}{inspect.signature(raw)} cannot be called by the {manager!r} manager: {error}"
        remedy = f"Set reward.reward_manager.name={MANAGER}, or let the function accept {', '.join((*NAMES, *more))}"
        raise ConfigError(f"{CUSTOM_FUNCTION}.name", problem, remedy) from error
    return None
