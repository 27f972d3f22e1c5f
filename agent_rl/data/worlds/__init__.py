"""Generated worlds: tasks with tools that a very small model can learn; each file here is one world.

A world writes rows (and databases or documents for the tools), and has habits: ways to act in an episode, one of which
solves the task. A cold start teaches a model a mix of habits; reinforcement learning finds out which one pays.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from agent_rl.data.worlds.world import Habit, World
from agent_rl.errors import ConfigError, did_you_mean

__all__ = ["Habit", "World", "load_world", "world_names"]


def world_names() -> list[str]:
    """Return the names of all worlds."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "world")


def load_world(name: str) -> World:
    """Return the world with this name.

    Raises:
        ConfigError: there is no such world.
    """
    if name not in world_names():
        raise ConfigError("agent_rl.cold_start.world", f"there is no world {name!r}", did_you_mean(name, world_names()))
    world: World = import_module(f"{__name__}.{name}").WORLD
    return world
