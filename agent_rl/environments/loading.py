"""Loads the class of an environment from a file and describes its methods as tools.

A mistake that can be seen without running an episode raises a `ConfigError` with file, line and remedy.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from agent_rl.data.sources import read_raw
from agent_rl.environments.environment import Environment
from agent_rl.environments.families import family_class, family_names
from agent_rl.environments.method_tool import MethodTool
from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import UserCodeError, defined_at, is_users
from agent_rl.tools import ToolSpec
from agent_rl.tools.functions import argument_model, check_function, describe
from agent_rl.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_rl.environments.session import EnvironmentSession

__all__ = ["OWN", "EnvironmentType", "blocking_calls", "load_environment", "tool_names"]

KEY = "agent_rl.environments"
SPLITS = ("train", "test")
HELD_OUT = 8
"""Every eighth row of a file without a column `split` is a test row."""
OWN = frozenset(name for name in {**vars(Environment), **Environment.__annotations__} if not name.startswith("_"))
"""Names that are not tools."""
CALLS = {"rows": ("split", "seed"), "step": ("message",), "get_reward": (), "solve": (), "state_key": ()}
"""The arguments with which the methods are called."""
BLOCKING = ("requests.get", "requests.post", "subprocess.run", "time.sleep", "urllib.request.urlopen")
"""Common calls that block the event loop."""
TAKEN = OWN - CALLS.keys() - {"reset"}
"""Names that a method must not have."""


@dataclass(frozen=True)
class EnvironmentType:
    """A loaded environment, which all trajectories share.

    Attributes:
        name: the name in `agent_rl.environments`.
        target: what the name stands for, with an absolute path.
        cls: the class, or a callable without arguments that returns an instance.
    """

    agent: ClassVar[str | None] = None
    """The agent of the rows; None: the run's default."""
    resets_alike: ClassVar[bool] = True
    """Whether all samples of a row must begin in the same state."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Names of the reward's parts, if a trajectory may lack some of them; else they are read in the trial of a run."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Names of further parts, which have no weight."""
    multi_turn: ClassVar[Mapping[str, Any]] = {}
    """Values of `actor_rollout_ref.rollout.multi_turn` for its recipe."""

    name: str
    target: str
    cls: Any

    def session(self, row: Mapping[str, Any], limit_s: float, trajectory: Trajectory) -> EnvironmentSession:
        """Return the environment of one trajectory; see `EnvironmentSession`."""
        from agent_rl.environments.session import EnvironmentSession

        return EnvironmentSession(self, row, limit_s, trajectory)

    @property
    def rows_place(self) -> str:
        """Where the rows come from, for errors."""
        name = self.cls.__qualname__
        return f"{name}.data" if self.cls.data else f"{name}.rows ({defined_at(self.cls.rows)})"

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Return what the author gives the rows of a split, from the method `rows` or the file `data`.

        Raises:
            UserCodeError: the method `rows` raises.
        """
        if self.cls.data is None:
            try:
                return list(self.cls().rows(split, seed))
            except Exception as error:
                raise UserCodeError.of(f"{self.cls.__name__}.rows", error, code=self.cls.rows) from error
        try:
            rows = [dict(raw.value) for raw in read_raw(Path(inspect.getfile(self.cls)).parent / self.cls.data)]
        except ConfigError as error:
            where = f"{self.rows_place} ({defined_at(self.cls)})"
            raise ConfigError(where, f"{error.key}: {error.problem}", error.remedy) from error
        return [row for number, row in enumerate(rows) if split == (row.get("split") or SPLITS[number % HELD_OUT == 7])]

    def prompt(self, values: Any, place: str) -> Any:
        """Return the prompt of a row: text, or chat messages.

        Raises:
            ConfigError: it has none.
        """
        if not isinstance(values, Mapping) or "prompt" not in values:
            shown = f"has the keys {', '.join(values)}" if isinstance(values, Mapping) else f"is {values!r}"
            raise ConfigError(place, f"it {shown}, without prompt", "Yield a dict with the key prompt")
        return values["prompt"]

    def reset_call(self, values: Mapping[str, Any], place: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """Return the method `reset` of a row's environment, and its arguments."""
        return self.cls.reset, values

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
        """The model of each tool's arguments."""
        instance = self.cls.__new__(self.cls)
        return {name: argument_model(getattr(instance, name), {}) for name in tool_names(self.cls)}

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
        return any("reward_turn" in function.__code__.co_names for function in _functions(self.cls))

    def _spec(self, name: str, method: Callable[..., Any]) -> ToolSpec:
        place = Place(f"{self.cls.__qualname__}.{name}")
        if not inspect.getdoc(method):
            near = difflib.get_close_matches(name, OWN, n=1, cutoff=0.75)
            remedy = f"Did you mean {near[0]}? Otherwise say what it does" if near else "Say in it what the tool does"
            raise place.error(f"the tool ({defined_at(method)}) has no docstring", remedy)
        check_function(method, place)
        about = describe(method, place, parameters=True)
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
    from agent_rl.environments.trl import trl_environment

    place = Place(f"{key}.{name}" if key == KEY else key)
    family, _, identifier = target.partition(":")
    if family in family_names():
        return EnvironmentType(name, target, family_class(family, identifier))
    if ".py" in target and (trl := trl_environment(name, target, place)) is not None:
        return trl
    cls = _only_class(target, place) if target.endswith(".py") else find_object(target, place)
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise place.error(f"{target!r} is not a subclass of agent_rl.Environment", "Name the class of the task")
    for problem, remedy in _problems(cls):
        raise place.error(problem, remedy)
    if ".py" in target:
        target = f"{inspect.getfile(cls)}:{cls.__name__}"
    kind = EnvironmentType(name, target, cls)
    kind.specs  # noqa: B018 - a tool that cannot be described is an error here, not in the first episode
    return kind


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
    for function in filter(is_users, _functions(cls)):
        if function.__name__ in TAKEN:
            problem = (
                f"{function.__qualname__} ({defined_at(function)}) hides {function.__name__} of agent_rl.Environment"
            )
            yield problem, "Give the method another name"
    if not (cls.__doc__ or "").strip() or cls.__doc__ == Environment.__doc__:
        yield f"{where} has no docstring, which is the system message", "Say in it what the agent must do"
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
    for function in filter(is_users, _functions(cls)):
        for default in inspect.signature(function).parameters.values():
            if isinstance(default.default, list | dict | set):
                problem = f"{function.__qualname__} ({defined_at(function)}): the default of {default.name!r} is shared"
                yield problem, f"Write {default.name}=None, and make the value in the method"
        yield from blocking_calls(function)


def _misspelled(name: str, cls: type) -> str:
    """Return the remedy if a method probably should have this name."""
    near = difflib.get_close_matches(name, tool_names(cls), n=1, cutoff=0.8)
    return f"Rename {near[0]}, if it is meant to be that" if near else ""


def _functions(cls: type) -> Iterator[Callable[..., Any]]:
    for base in cls.__mro__:
        if base not in (object, Environment):
            for value in vars(base).values():
                function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if inspect.isfunction(function):
                    yield inspect.unwrap(function)


def blocking_calls(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield calls that would stop the event loop, and those that only the main thread may make."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        file, _, first = defined_at(function).rpartition(":")
        line = f"{function.__qualname__} ({file}:{int(first) + node.lineno - 1})"
        if call in ("signal.alarm", "signal.signal", "signal.setitimer"):
            yield f"{line} calls {call}, which fails outside the main thread", "Rely on agent_rl.budget.tool_timeout_s"
        if call in BLOCKING and inspect.iscoroutinefunction(function):
            remedy = "Write def instead of async def: a plain method runs on a thread of its own"
            yield f"{line} calls {call} in an async method, which stops all trajectories", remedy
        if call in ("input", "exit", "quit", "sys.exit", "os._exit"):
            yield f"{line} calls {call}, which a training run cannot do", "Remove the call"
