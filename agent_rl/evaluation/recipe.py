"""The settings of an evaluation that come from a recipe: validation data, agent, tools, limits, sampling and reward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.evaluation.prompt_keys import PROMPT_KEYS, TRAINING_ONLY, refuse_training_only, value_of
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.launch.composition import compose, groups, problems, resolved
from agent_rl.trajectory.run_files import read_record


def split_words(recipe: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split `key=value` words into changes to the recipe, such as `size=0.5b`, and settings for the evaluation."""
    known = {*groups(recipe).keys() - EvaluationSettings.model_fields.keys(), *TRAINING_ONLY}
    choices = [word for word in words if word.lstrip("+").partition("=")[0] in known]
    return choices, [word for word in words if word not in choices]


def recipe_values(recipe: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings of `agent-rl eval` that a recipe defines; flags and `key=value` words override them.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides.

    Raises:
        ConfigError: the recipe cannot be composed, only training can build its prompts, or `values_of` rejects it.
    """
    config = compose(recipe, overrides)
    refuse_training_only(resolved(config))
    return values_of(config)


def run_values(folder: Path, with_model: bool = True) -> dict[str, Any]:
    """Return the evaluation settings that a run's configuration defines, with its newest checkpoint as the model.

    Args:
        folder: the run's folder, with `run.json`.
        with_model: whether a missing checkpoint is an error.

    Raises:
        ConfigError: the folder contains no run, the run has no checkpoint, or `values_of` rejects its configuration.
    """
    about = read_record(folder, str(folder), "Pass a run's folder, or a model with --model")
    config = OmegaConf.create(about["configuration"])
    checkpoints = Path(str(config.trainer.default_local_dir)).expanduser()
    if with_model and not (checkpoints / "latest_checkpointed_iteration.txt").is_file():
        remedy = "Train with trainer.save_freq=N, which saves every N steps and at the last step; or pass --model"
        raise ConfigError("RUN", f"the run {folder} has saved no checkpoint", remedy)
    refuse_training_only(about["configuration"])
    script = [file["path"] for file in about["files"].get("--script", ())]
    return {**values_of(config), "model": str(checkpoints), **({"script": script[0]} if script else {})}


def values_of(config: Any) -> dict[str, Any]:
    """Return the settings of `agent-rl eval` that a composed training configuration defines.

    Raises:
        ConfigError: the configuration has several files of validation data, or a reward that only the trainer can
            compute.
    """
    if errors := problems(config):
        raise errors[0]
    plain = resolved(config)
    rollout, data, reward = plain["actor_rollout_ref"]["rollout"], plain["data"], plain["reward"]
    if (name := reward["reward_manager"]["name"]) != "trajectory":
        reason = f"the recipe's reward comes from verl's {name!r} manager, which an evaluation cannot use"
        raise ConfigError("reward.reward_manager.name", reason, "Set the manager to trajectory in the recipe")
    files = [data["val_files"]] if isinstance(data["val_files"], str) else data["val_files"] or []
    if len(files) != 1:
        raise ConfigError("data.val_files", f"the recipe lists {len(files)} files", "Pass one file with --data")
    chosen = rollout["val_kwargs"]
    values: dict[str, Any] = {}
    for key, own in PROMPT_KEYS.items():
        section, _, setting = own.rpartition(".")
        (values.setdefault(section, {}) if section else values)[setting] = value_of(plain, key)
    values["sampling"] |= {"temperature": chosen["temperature"], "top_p": chosen["top_p"]}
    if chosen["top_k"] > 0:
        values["sampling"]["top_k"] = chosen["top_k"]
    return {
        **values,
        "data": str(files[0]),
        "n": chosen["n"],
        "limit": data["val_max_samples"] if data["val_max_samples"] > 0 else None,
        "reward": {"custom_reward_function": reward["custom_reward_function"]},
    }
