"""What a recipe says about an evaluation: its validation data, agent, tools, limits, sampling and reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import EvaluationSettings, MultiTurnSettings
from agent_rl.launch import resolution
from agent_rl.launch.composition import compose, groups
from agent_rl.settings import SECTION

__all__ = ["recipe_values", "split_words", "values_of"]


def split_words(recipe: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the `key=value` words that choose an option of the recipe, such as `size=0.5b`, and the settings."""
    known = groups(recipe).keys() - EvaluationSettings.model_fields.keys()
    choices = [word for word in words if word.lstrip("+").partition("=")[0] in known]
    return choices, [word for word in words if word not in choices]


def recipe_values(recipe: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of `agent-rl eval` that a recipe gives; flags and `key=value` words win over them.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides.

    Raises:
        ConfigError: for a recipe that does not compose, and as `values_of`.
    """
    return values_of(compose(recipe, overrides))


def values_of(config: Any) -> dict[str, Any]:
    """The same of a composed configuration.

    Raises:
        ConfigError: for several files of validation data, or a reward that only the trainer can compute.
    """
    if problems := resolution.problems(config):
        raise problems[0]
    plain = resolution.resolved(config)
    rollout, data, reward = plain["actor_rollout_ref"]["rollout"], plain["data"], plain["reward"]
    if (name := reward["reward_manager"]["name"]) != "trajectory":
        problem = f"the recipe's reward is that of verl's manager {name!r}, which an evaluation does not have"
        raise ConfigError("reward.reward_manager.name", problem, "Set it to trajectory in the recipe")
    chosen = rollout["val_kwargs"]
    sampling = {"temperature": chosen["temperature"], "top_p": chosen["top_p"]}
    if chosen["top_k"] > 0:
        sampling["top_k"] = chosen["top_k"]
    return {
        "data": _one(data["val_files"]),
        "tools": rollout["multi_turn"]["tool_config_path"],
        "default_loop": rollout["agent"]["default_agent_loop"],
        "n": chosen["n"],
        "limit": data["val_max_samples"] if data["val_max_samples"] > 0 else None,
        "sampling": {**sampling, "max_response_tokens": data["max_response_length"]},
        "multi_turn": {key: rollout["multi_turn"][key] for key in MultiTurnSettings.model_fields},
        "reward": {"custom_reward_function": reward["custom_reward_function"]},
        SECTION: plain.get(SECTION) or {},
    }


def _one(files: Any) -> str:
    found = [files] if isinstance(files, str) else list(files or [])
    if len(found) != 1:
        raise ConfigError("data.val_files", f"the recipe names {len(found)} files", "Name the one to use with --data")
    return str(found[0])
