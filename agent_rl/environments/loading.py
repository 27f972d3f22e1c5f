"""Loads the class of an environment from a file and describes its methods as tools.

A mistake that can be seen without running an episode raises a `ConfigError` with file, line and remedy.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_rl.environments.environment import Environment
from agent_rl.environments.families import family_class, family_names
from agent_rl.environments.method_tool import MethodTool
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import defined_at, is_users
from agent_rl.tools import ToolSpec
from agent_rl.tools.functions import argument_model, check_function, describe

__all__ = ["EnvironmentType", "load_environment"]

KEY = "agent_rl.environments"
OWN = frozenset(name for name in vars(Environment) if not name.startswith("_"))
"""Names that are not tools."""
CALLS = {"rows": ("split", "seed"), "step": ("message",), "get_reward": (), "solve": (), "state_key": ()}
"""The arguments with which the methods are called."""


@dataclass(frozen=True)
class EnvironmentType:
    """A loaded environment, which all trajectories share.

    Attributes:
        name: the name in `agent_rl.environments`.
        target: what the name stands for, with an absolute path.
        cls: the class, or a callable without arguments that returns an instance.
    """

    name: str
    target: str
    cls: Any

    @cached_property
    def specs(self) -> list[ToolSpec]:
        """The tools, in the order of their definition.

        Raises:
            ConfigError: a method has no type hints or no docstring; names its line.
        """
        instance = self.cls.__new__(self.cls)
        return [self._spec(name, getattr(instance, name)) for name in tool_names(self.cls)]

    @cached_property
    def arguments(self) -> Mapping[str, type[BaseModel]]:
        """The model of each tool's arguments; a method with a schema gets them as they are."""
        instance = self.cls.__new__(self.cls)
        methods = {name: getattr(instance, name) for name in tool_names(self.cls)}
        return {name: argument_model(each, {}) for name, each in methods.items() if not hasattr(each, "schema")}

    def has(self, method: str) -> bool:
        """Whether the class defines an optional method itself."""
        return getattr(self.cls, method) is not getattr(Environment, method)

    @property
    def system(self) -> str:
        """The system message: the class's docstring."""
        return inspect.cleandoc(self.cls.__doc__ or "")

    @property
    def rewards_turns(self) -> bool:
        """Whether a method of the class mentions `reward_turn`."""
        return any("reward_turn" in code.co_names for code in _codes(self.cls))

    def _spec(self, name: str, method: Callable[..., Any]) -> ToolSpec:
        if hasattr(method, "schema"):  # of a class that is made at run time
            return ToolSpec(cls=MethodTool, config={"method": name}, **method.schema)
        place = Place(f"{self.cls.__qualname__}.{name}")
        check_function(method, place)
        about = describe(method, place, parameters=True)
        if not about["description"]:
            near = difflib.get_close_matches(name, OWN, n=1, cutoff=0.8)
            remedy = f"Did you mean {near[0]}? A tool says in one line what it does" if near else "Say what it does"
            raise place.error(f"the tool ({defined_at(method)}) has no docstring", remedy)
        return ToolSpec(cls=MethodTool, config={"method": name}, **about)


@cache
def load_environment(name: str, target: str, key: str = KEY) -> EnvironmentType:
    """Load an environment and check its class.

    Args:
        name: its name in `agent_rl.environments`.
        target: `file.py`, `file.py:Class`, `package.module.Class`, or `family:id` for an environment of
            `agent_rl.environments.families`.
        key: the configuration key of `target`, for errors.

    Raises:
        ConfigError: there is no such class, or a method of it cannot work.
    """
    place = Place(f"{key}.{name}" if key == KEY else key)
    family, _, identifier = target.partition(":")
    if family in family_names():
        return EnvironmentType(name, target, family_class(family, identifier))
    cls = _only_class(target, place) if target.endswith(".py") else find_object(target, place)
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise place.error(f"{target!r} is not a subclass of agent_rl.Environment", "Name the class of the task")
    for problem, remedy in _problems(cls):
        raise place.error(problem, remedy)
    if ".py" in target:
        target = f"{inspect.getfile(cls)}:{cls.__name__}"
    return EnvironmentType(name, target, cls)


def tool_names(cls: type) -> list[str]:
    """Return the names of a class's public methods, inherited ones included, in the order of their definition."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        if base not in (object, Environment):
            for name, value in vars(base).items():
                function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if inspect.isfunction(function) and not name.startswith("_") and name not in OWN:
                    names[name] = None
    return list(names)


def _only_class(target: str, place: Place) -> type:
    """Return the only environment that a file defines."""
    module = load_file(target, Path.cwd(), place)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
    ]
    if len(classes) == 1:
        return classes[0]
    if not classes:
        raise place.error(f"{target} has no subclass of agent_rl.Environment", "Derive the class of the task from it")
    names = ", ".join(cls.__name__ for cls in classes)
    raise place.error(f"{target} has several environments: {names}", f"Name one: {target}:{classes[0].__name__}")


def _problems(cls: type[Environment]) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) for each mistake in the class that can be seen without an episode."""
    where = f"{cls.__qualname__} ({defined_at(cls)})"
    for name, arguments in CALLS.items():
        try:
            inspect.signature(method := getattr(cls, name)).bind(None, *arguments)
        except TypeError as error:
            problem = f"{cls.__qualname__}.{name} ({defined_at(method)}) cannot be called: {error}"
            yield problem, f"Write def {name}({', '.join(['self', *arguments])})"
    if not (cls.__doc__ or "").strip() or cls.__doc__ == Environment.__doc__:
        yield f"{where} has no docstring, which is the system message", "Say in it what the agent must do"
    if cls.get_reward is Environment.get_reward:
        yield f"{where} has no get_reward", "Define get_reward(self), which returns a number or named parts"
    if cls.rows is Environment.rows and cls.data is None:
        yield f"{where} has no rows", "Define rows(self, split, seed), or set data = 'FILE.parquet'"
    if not tool_names(cls) and cls.step is Environment.step:
        yield f"{where} has no tool", "Define a public method with type hints and a docstring, or step(self, message)"
    for base in cls.__mro__:
        for name, value in vars(base).items() if is_users(base) else ():
            if isinstance(value, list | dict | set) and not name.startswith("__") and not name.isupper():
                remedy = f"Set self.{name} in reset; write a constant in capitals"
                yield f"{base.__qualname__}.{name} is a {type(value).__name__} that all trajectories share", remedy
    for function in _functions(cls):
        for default in inspect.signature(function).parameters.values():
            if isinstance(default.default, list | dict | set):
                problem = f"{function.__qualname__} ({defined_at(function)}): the default of {default.name!r} is shared"
                yield problem, f"Write {default.name}=None, and make the value in the method"
        yield from _blocking(function)


def _functions(cls: type) -> Iterator[Callable[..., Any]]:
    for base in cls.__mro__:
        if is_users(base):
            for value in vars(base).values():
                function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if inspect.isfunction(function):
                    yield inspect.unwrap(function)


def _codes(cls: type) -> Iterator[Any]:
    for function in _functions(cls):
        yield function.__code__


def _blocking(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield calls that would stop the event loop, and those that only the main thread may make."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        line = f"{function.__qualname__} ({defined_at(function)})"
        if call in ("signal.alarm", "signal.signal", "signal.setitimer"):
            yield f"{line} calls {call}, which fails outside the main thread", "Rely on agent_rl.budget.tool_timeout_s"
        if call == "time.sleep" and inspect.iscoroutinefunction(function):
            yield f"{line} calls time.sleep in an async method, which stops all trajectories", "Await asyncio.sleep"
        if call in ("input", "exit", "quit", "sys.exit", "os._exit"):
            yield f"{line} calls {call}, which a training run cannot do", "Remove the call"
