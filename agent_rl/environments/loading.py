"""Loads an environment's class from a file, and opens an environment for each trajectory.

A mistake that is visible without running an episode raises a `ConfigError` that names file, line and remedy.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent_rl.environments.environment import Environment
from agent_rl.environments.families import family_class, family_names
from agent_rl.environments.kind import NAME, OWN, EnvironmentType, blocking_calls, functions_of, row_values, tool_names
from agent_rl.environments.session import EnvironmentSession
from agent_rl.environments.trl import ADDED, trl_environment
from agent_rl.environments.trl_session import TrlSession, TrlType
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import defined_at, is_users
from agent_rl.trajectory import Trajectory

KEY = "agent_rl.environments"
CALLS = {"rows": ("split", "seed"), "step": ("message",), "get_reward": (), "solve": (), "state_key": ()}
"""The arguments of each method that an environment may define."""
TAKEN = OWN - CALLS.keys() - {"reset"}
"""Names that a method of an environment must not have."""


@cache
def load_environment(name: str, target: str, key: str = KEY) -> EnvironmentType:
    """Load an environment and check its class.

    Args:
        name: the environment's name in `agent_rl.environments`.
        target: `file.py`, `file.py:Class`, `package.module.Class`, or `family:id` for an environment of
            `agent_rl.environments.families`.
        key: the configuration key of `target`, which error messages name.

    Raises:
        ConfigError: the class does not exist, or one of its methods cannot work.
    """
    place = Place(f"{key}.{name}" if key == KEY else key)
    family, _, identifier = target.partition(":")
    if family in family_names():
        return EnvironmentType(name, target, family_class(family, identifier))
    if ".py" in target and (trl := trl_environment(name, target, place)) is not None:
        return trl
    if ADDED in target:
        problem = f"{target!r} adds rows or a reward to a class that already defines them"
        raise place.error(problem, "Drop --data and --reward, and add components in agent_rl.reward.components")
    cls = _only_class(target, place) if target.endswith(".py") else find_object(target, place)
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise place.error(f"{target!r} is not a subclass of agent_rl.Environment", "Name the class of the task")
    for problem, remedy in _problems(cls):
        raise place.error(problem, remedy)
    if ".py" in target:
        target = f"{inspect.getfile(cls)}:{cls.__name__}"
    kind = EnvironmentType(name, target, cls)
    kind.specs  # noqa: B018 - an error in a tool's description is raised now, not in the first episode
    return kind


def open_environment(
    names: Mapping[str, str], row: Mapping[str, Any], limit_s: float, trajectory: Trajectory
) -> EnvironmentSession | None:
    """Return a session for the row's environment, or None if the row has no environment.

    Args:
        names: the `agent_rl.environments` section.
        row: the row's columns.
        limit_s: time limit for one method call in seconds.
        trajectory: the row's trajectory.

    Raises:
        ConfigError: the row's environment is not among the names, or cannot be loaded.
    """
    info = row.get("extra_info") or {}
    if (name := info.get(NAME)) is None:
        return None
    if name not in names:
        raise ConfigError(f"extra_info.{NAME}", f"there is no environment {name!r}", did_you_mean(str(name), names))
    return open_session(load_environment(name, names[name]), row_values(row), limit_s, trajectory)


def open_session(
    kind: EnvironmentType, values: Mapping[str, Any], limit_s: float, trajectory: Trajectory
) -> EnvironmentSession:
    """Return a session of an environment; see `EnvironmentSession`."""
    if isinstance(kind, TrlType):
        return TrlSession(kind, values, limit_s, trajectory)
    return EnvironmentSession(kind, values, limit_s, trajectory)


def _only_class(target: str, place: Place) -> type:
    """Return the only environment that a file defines."""
    module = load_file(target, Path.cwd(), place)
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    classes = [cls for cls in own if issubclass(cls, Environment)]
    if len(classes) == 1:
        return classes[0]
    names = ", ".join(f"{cls.__name__} ({defined_at(cls)})" for cls in classes or own)
    if not classes:
        problem = f"{target} defines no subclass of agent_rl.Environment" + (f", only {names}" if names else "")
        raise place.error(problem, "Derive the class of the task from agent_rl.Environment")
    raise place.error(f"{target} defines several environments: {names}", f"Name one: {target}:{classes[0].__name__}")


def _problems(cls: type[Environment]) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) for every mistake in the class that is visible without an episode."""
    where = f"{cls.__qualname__} ({defined_at(cls)})"
    for name, arguments in CALLS.items():
        try:
            inspect.signature(method := getattr(cls, name)).bind(None, *arguments)
        except TypeError as error:
            problem = f"{cls.__qualname__}.{name} ({defined_at(method)}) cannot be called: {error}"
            yield problem, f"Write def {name}({', '.join(['self', *arguments])})"
    for function in filter(is_users, functions_of(cls)):
        if function.__name__ in TAKEN:
            problem = (
                f"{function.__qualname__} ({defined_at(function)}) hides {function.__name__} of agent_rl.Environment"
            )
            yield problem, "Give the method another name"
    if not (cls.__doc__ or "").strip() or cls.__doc__ == Environment.__doc__:
        yield f"{where} has no docstring, which would be the system message", "Describe the task in a docstring"
    if cls.get_reward is Environment.get_reward:
        remedy = "Define get_reward(self), which returns a number or named parts"
        yield f"{where} has no get_reward", _misspelled("get_reward", cls) or remedy
    if cls.rows is Environment.rows and cls.data is None:
        remedy = "Define rows(self, split, seed), or set data = 'FILE.parquet'"
        yield f"{where} has no rows", _misspelled("rows", cls) or remedy
    if not tool_names(cls) and cls.step is Environment.step:
        yield f"{where} has no tool", "Define a public method with type hints and a docstring, or step(self, message)"
    for base in filter(is_users, cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, list | dict | set) and not name.startswith("__") and not name.isupper():
                shared = f"{base.__qualname__}.{name} ({defined_at(base)}) is a {type(value).__name__}"
                remedy = f"Set self.{name} in reset; write a constant in capitals"
                yield f"{shared} that all trajectories share", remedy
    for function in filter(is_users, functions_of(cls)):
        for default in inspect.signature(function).parameters.values():
            if isinstance(default.default, list | dict | set):
                problem = f"{function.__qualname__} ({defined_at(function)}): the default of {default.name!r} is shared"
                yield problem, f"Write {default.name}=None, and create the value in the method"
        yield from blocking_calls(function)


def _misspelled(name: str, cls: type) -> str:
    """Return a remedy if the name of another method is probably a misspelling of this name, else ""."""
    near = difflib.get_close_matches(name, tool_names(cls), n=1, cutoff=0.8)
    return f"Rename {near[0]}, if it is meant to be this method" if near else ""
