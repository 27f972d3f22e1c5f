"""The registry of component kinds: the values of `agent_rl.reward.components.<name>.kind`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from agent_rl.rewards.component import DECLARED, Component, GroupComponent
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.importing import find_class, import_all

__all__ = ["kinds", "make_component"]

FOLDERS = ("components", "judge", "models")
"""Folders whose modules define kinds."""


@cache
def kinds() -> dict[str, type[Component | GroupComponent]]:
    """The built-in kinds by name, from the classes in `FOLDERS`."""
    for folder in FOLDERS:
        import_all(f"agent_rl.rewards.{folder}")
    return dict(sorted(DECLARED.items()))


def make_component(name: str, kind: str, config: Mapping[str, Any], key: str) -> Component | GroupComponent:
    """Create a component of a kind.

    Args:
        name: the user's name for it.
        kind: one of `kinds()`, or a class, `package.module.Class` or `file.py:Class`.
        config: the keys of the class's `Config`.
        key: the configuration key above `kind` and `config`, for errors.

    Raises:
        ConfigError: there is no such kind, or the config does not fit it.
    """
    place = Place(key)
    found = kinds().get(kind) or find_class(kind, (Component, GroupComponent), place / "kind", known=kinds())
    made: Component | GroupComponent = found(name, validated(found.Config, dict(config), place / "config"))
    return made
