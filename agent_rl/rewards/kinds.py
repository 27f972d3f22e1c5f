"""The kinds of component: what `agent_rl.reward.components.<name>.kind` may name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.component import DECLARED, Component, GroupComponent
from agent_rl.settings import config_error
from agent_rl.settings.importing import ClassNameError, find_object, import_all

__all__ = ["kinds", "make_component"]

FOLDERS = ("components", "judge", "models")
"""Folders whose modules define kinds."""


@cache
def kinds() -> dict[str, type[Component | GroupComponent]]:
    """Our kinds by name: what the classes in `FOLDERS` declare."""
    for folder in FOLDERS:
        import_all(f"agent_rl.rewards.{folder}")
    return dict(sorted(DECLARED.items()))


def make_component(name: str, kind: str, config: Mapping[str, Any], key: str) -> Component | GroupComponent:
    """A component of a kind.

    Args:
        name: the user's name for it.
        kind: one of `kinds()`, or a class, `package.module.Class` or `file.py:Class`.
        config: what the class takes.
        key: below which `kind` and `config` stand, for messages.

    Raises:
        ConfigError: there is no such kind, or the config does not fit it.
    """
    if kind not in kinds() and "." not in kind:
        raise ConfigError(f"{key}.kind", f"there is no kind {kind!r}", did_you_mean(kind, kinds()))
    try:
        found = kinds().get(kind) or find_object(kind, Path.cwd())
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
