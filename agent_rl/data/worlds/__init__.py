"""Generated worlds: tasks with tools that a very small model can learn, one file each, found by its name.

A world writes rows (and databases or documents for the tools), and has habits: ways to act in an episode, among them
the solver. A cold start teaches a model a mix of habits, and reinforcement learning has to find out which one pays.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from agent_rl.data.worlds.world import Habit, World
from agent_rl.errors import ConfigError, did_you_mean

__all__ = ["Habit", "World", "load_world", "world_names"]


def world_names() -> list[str]:
    """The names of all worlds."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "world")


def load_world(name: str) -> World:
    """The world of a name.

    Raises:
        ConfigError: no world has this name.
    """
    if name not in world_names():
        raise ConfigError("agent_rl.cold_start.world", f"there is no world {name!r}", did_you_mean(name, world_names()))
    world: World = import_module(f"{__name__}.{name}").WORLD
    return world
