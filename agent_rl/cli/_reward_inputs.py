"""Inputs for the `agent-rl reward` commands: the configuration, and stored results from which a command resumes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.rewards.compose import Reward
    from agent_rl.work.store import Pieces


def kept_pieces(
    what: str, total: int, config: Path | None, overrides: list[str] | None, work: list[Any]
) -> AbstractContextManager[Pieces]:
    """Open the store for a command's results; its arguments, configuration and files identify the store."""
    from omegaconf import OmegaConf

    from agent_rl.work.store import pieces

    return pieces(what, total, [*work, config, OmegaConf.to_container(configuration(config, overrides or []))])


def configured(config: Path | None, overrides: Sequence[str]) -> Reward:
    """Build the reward that a configuration and its overrides define.

    Raises:
        ConfigError: a setting cannot be used; the error names the key, value and remedy.
    """
    from omegaconf import OmegaConf

    from agent_rl.rewards.custom import configured_reward
    from agent_rl.rewards.user_function import CUSTOM_FUNCTION
    from agent_rl.settings import AgentRLSettings

    settings = configuration(config, overrides)
    limit: Any = OmegaConf.select(settings, "data.max_response_length")
    limit = None if limit is None else int(limit)
    custom = OmegaConf.select(settings, CUSTOM_FUNCTION)
    function: Any = None if custom is None else OmegaConf.to_container(custom)
    return configured_reward(AgentRLSettings.from_config(settings).reward, function, max_response_tokens=limit)


def configuration(config: Path | None, overrides: Sequence[str]) -> Any:
    """Read the configuration; a recipe is composed as in training, while any other file is only loaded."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from agent_rl.settings.errors import from_words, yaml_errors

    for word in overrides:
        if "=" not in word or not word.startswith(("agent_rl.", "data.max_response_length=")):
            raise ConfigError(word, "this is not a setting of the reward", "Write agent_rl.reward.<key>=<value>")
    is_recipe = config is not None and (config.is_dir() or not config.suffix)  # a recipe is a folder or a bare name
    try:
        content: Any = OmegaConf.create({})
        if config is not None and not is_recipe:
            with yaml_errors(config):
                content = OmegaConf.load(config)
        if not OmegaConf.is_dict(content):
            raise ConfigError("--config", f"{config} has no sections", "Pass a YAML file or a recipe's folder")
        if config is not None and (is_recipe or "defaults" in content):
            from agent_rl.launch.composition import compose

            return compose(config if is_recipe else config.parent, overrides)
        words = [f"{word}''" if word.endswith("=") else word for word in overrides]
        merged: Any = OmegaConf.merge(content, from_words(words))
    except OmegaConfBaseException as error:
        raise ConfigError("--config", str(error).splitlines()[0], "Pass a YAML file or a recipe's folder") from error
    return merged
