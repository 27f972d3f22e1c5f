"""The kinds of component: what `agent_rl.reward.components.<name>.kind` may say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.component import Component, GroupComponent
from agent_rl.settings import config_error
from agent_rl.settings.importing import ClassNameError, find_object

__all__ = ["KINDS", "make_component"]

KINDS: dict[str, str] = {
    "consistency": "agent_rl.rewards.components.consistency.Consistency",
    "embedding": "agent_rl.rewards.components.embedding.Embedding",
    "judge": "agent_rl.rewards.judge.Judge",
    "pairwise_judge": "agent_rl.rewards.judge.PairwiseJudge",
    "potential": "agent_rl.rewards.components.shaping.Potential",
    "reward_api": "agent_rl.rewards.components.reward_api.RewardApi",
    "reward_model": "agent_rl.rewards.models.RewardModel",
    "rules": "agent_rl.rewards.components.rules.Rules",
    "tags": "agent_rl.rewards.components.rules.Tags",
    "tool_rewards": "agent_rl.rewards.components.shaping.ToolRewards",
}
"""Ours, by name; each is imported when it is asked for."""


def make_component(name: str, kind: str, config: Mapping[str, Any], key: str) -> Component | GroupComponent:
    """A component of a kind.

    Args:
        name: the user's name for it.
        kind: one of `KINDS`, or a class, `package.module.Class` or `file.py:Class`.
        config: what the class takes.
        key: below which `kind` and `config` stand, for messages.

    Raises:
        ConfigError: there is no such kind, or the config does not fit it.
    """
    if kind not in KINDS and "." not in kind:
        raise ConfigError(f"{key}.kind", f"there is no kind {kind!r}", did_you_mean(kind, KINDS))
    try:
        found = find_object(KINDS.get(kind, kind), Path.cwd())
    except ClassNameError as error:
        raise ConfigError(f"{key}.kind", error.problem, error.remedy) from error
    if not (isinstance(found, type) and issubclass(found, Component | GroupComponent)):
        remedy = "Derive it from agent_rl.rewards.component.Component or GroupComponent"
        raise ConfigError(f"{key}.kind", f"{kind!r} is not a component", remedy)
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigError(f"{key}.kind", f"{kind!r} does not define {', '.join(missing)}", "Write it")
    try:
        checked = found.Config.model_validate(dict(config))
    except ValidationError as error:
        raise config_error(found.Config, error, f"{key}.config") from error
    return found(name, checked)
