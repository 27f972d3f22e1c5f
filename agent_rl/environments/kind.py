"""`EnvironmentType`: a loaded environment, whose methods are tools; `environment_rows` returns its rows."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from agent_rl.data.rows import make_row
from agent_rl.data.sources import read_raw
from agent_rl.environments.environment import Environment
from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.user_code import UserCodeError, defined_at
from agent_rl.tools import Tool, ToolSpec
from agent_rl.tools.base import ToolConfig, ToolOutput
from agent_rl.tools.functions import argument_model, check_function, describe
from agent_rl.trajectory import plain

NAME, ROW = "environment", "environment_row"
"""Keys of `extra_info`: the name of the row's environment, and the row's values as JSON text."""
USER = "user"
"""Key of the simulated user, both in a row's values and in `extra_info`."""
SPLITS = ("train", "test")
OWN = frozenset(name for name in {**vars(Environment), **Environment.__annotations__} if not name.startswith("_"))
"""Names of the attributes that `Environment` itself has, which are not tools."""
SESSION = "agent_rl.environment"
"""Key of the trajectory's `EnvironmentSession` among the resources that the trajectory's tools share."""
_BLOCKING = ("requests.get", "requests.post", "subprocess.run", "time.sleep", "urllib.request.urlopen")
_ALARMS = ("signal.alarm", "signal.signal", "signal.setitimer")
_TERMINAL = ("input", "exit", "quit", "sys.exit", "os._exit")
_REFUSED = {
    **dict.fromkeys(_ALARMS, (", which fails outside the main thread", "Rely on agent_rl.budget.tool_timeout_s")),
    **dict.fromkeys(_TERMINAL, (", which a training run cannot do", "Remove the call")),
}
_REFUSED_IN_ASYNC = _REFUSED | dict.fromkeys(
    _BLOCKING,
    (
        " in an async method, which stops all trajectories",
        "Write def instead of async def: a plain method runs on a separate thread",
    ),
)
"""Calls that an `async` method must not make, each with the problem and the remedy."""


class _Method(ToolConfig):
    method: str


class MethodTool(Tool):
    """Calls a method of the trajectory's environment."""

    Config = _Method
    in_order = True

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Call the method and return its result."""
        output: ToolOutput = await self.scope.shared(SESSION).call(self.settings.method, arguments)
        return output


@dataclass(frozen=True)
class EnvironmentType:
    """A loaded environment, which all trajectories share.

    Attributes:
        name: the name in `agent_rl.environments`.
        target: the class or file that the name refers to, with an absolute path.
        cls: the class, or a callable without arguments that returns an instance.
    """

    agent: ClassVar[str | None] = None
    """The agent that runs the rows; None means the run's default agent."""
    resets_alike: ClassVar[bool] = True
    """Whether all samples of a row must begin in the same state."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Names of the reward's parts, if a trajectory may lack some; otherwise the trial before a run determines them."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Names of additional reward parts, which have no weight."""
    multi_turn: ClassVar[Mapping[str, Any]] = {}
    """Values for `actor_rollout_ref.rollout.multi_turn` in a recipe that uses this environment."""

    name: str
    target: str
    cls: Any

    @property
    def rows_place(self) -> str:
        """The source of the rows, which error messages name."""
        name = self.cls.__qualname__
        return f"{name}.data" if self.cls.data else f"{name}.rows ({defined_at(self.cls.rows)})"

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a split as the author wrote them, from the `rows` method or the `data` file.

        Raises:
            UserCodeError: the `rows` method raises an exception.
        """
        if self.cls.data is None:
            try:
                return list(self.cls().rows(split, seed))
            except Exception as error:
                remedy = "Correct the method, which must yield a dict for each row"
                raise UserCodeError.of(f"{self.cls.__name__}.rows", error, remedy, self.cls.rows) from error
        try:
            rows = [dict(raw.value) for raw in read_raw(Path(inspect.getfile(self.cls)).parent / self.cls.data)]
        except ConfigError as error:
            where = f"{self.rows_place} ({defined_at(self.cls)})"
            raise ConfigError(where, f"{error.key}: {error.problem}", error.remedy) from error
        return [row for number, row in enumerate(rows) if split == (row.get("split") or split_of(number))]

    def prompt(self, values: Any, place: str) -> Any:
        """Return the prompt of a row: text, or chat messages.

        Raises:
            ConfigError: the row has no prompt.
        """
        if not isinstance(values, Mapping) or "prompt" not in values:
            keys = f"has the keys {', '.join(values)}, but no prompt" if isinstance(values, Mapping) else ""
            raise ConfigError(place, f"it {keys or f'is {values!r}, not a dict'}", "Yield a dict with the key prompt")
        return values["prompt"]

    def reset_call(self, values: Mapping[str, Any], place: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """Return the `reset` method of a row's environment, and the method's arguments."""
        return self.cls.reset, values

    @cached_property
    def specs(self) -> list[ToolSpec]:
        """The tools, in the order of their definition.

        Raises:
            ConfigError: a method has no type hints or no docstring; the error names the line.
        """
        return [self._spec(name, method) for name, method in self._methods.items()]

    @cached_property
    def arguments(self) -> Mapping[str, type[BaseModel]]:
        """The Pydantic model of each tool's arguments, except for methods with a schema, which need no model."""
        methods = self._methods.items()
        return {name: argument_model(each, {}) for name, each in methods if not hasattr(each, "schema")}

    @property
    def _methods(self) -> dict[str, Callable[..., Any]]:
        instance = self.cls.__new__(self.cls)
        return {name: getattr(instance, name) for name in tool_names(self.cls)}

    def has(self, method: str) -> bool:
        """Whether the class overrides an optional method of `Environment`."""
        return getattr(self.cls, method) is not getattr(Environment, method)

    @property
    def system(self) -> str:
        """The system message: the class's docstring."""
        return inspect.cleandoc(self.cls.__doc__ or "")

    @property
    def rewards_turns(self) -> bool:
        """Whether a method of the class mentions `reward_turn`."""
        return any("reward_turn" in function.__code__.co_names for function in functions_of(self.cls))

    def _spec(self, name: str, method: Callable[..., Any]) -> ToolSpec:
        if hasattr(method, "schema"):  # methods of a class created at run time have a schema, but no source code
            return ToolSpec(cls=MethodTool, config={"method": name}, **method.schema)
        place = Place(f"{self.cls.__qualname__}.{name}")
        if not inspect.getdoc(method):
            near = difflib.get_close_matches(name, OWN, n=1, cutoff=0.75)
            remedy = f"Did you mean {near[0]}? If not, describe the tool" if near else "Write a docstring for the tool"
            raise place.error(f"the tool ({defined_at(method)}) has no docstring", remedy)
        check_function(method, place)
        return ToolSpec(cls=MethodTool, config={"method": name}, **describe(method, place, parameters=True))


def environment_rows(kind: EnvironmentType, split: str, seed: int) -> list[dict[str, Any]]:
    """Return the rows of a split, from the `rows` method or the `data` file.

    Rows with a simulated user (a `user` mapping) select `user_sim_agent`; other rows use the run's default agent.

    Args:
        kind: the environment.
        split: `train` or `test`.
        seed: seed for generating rows.

    Raises:
        ConfigError: there are no rows, or a row cannot be used; the error names the row and the line of the method.
        UserCodeError: the `rows` method raises an exception.
    """
    where = kind.rows_place
    rows = []
    for index, values in enumerate(kind.rows(split, seed)):
        place = f"{where}, {split} row {index}"
        prompt = kind.prompt(values, place)
        function, arguments = kind.reset_call(values, place)
        try:
            inspect.signature(function).bind(None, **arguments)
        except TypeError as error:
            remedy = f"The row has {', '.join(arguments)}; add **row to reset for columns that reset does not need"
            raise ConfigError(f"{place}, reset ({defined_at(function)})", str(error), remedy) from error
        try:
            text = json.dumps(plain(place, dict(values)), ensure_ascii=False)
        except ValueError as error:
            raise ConfigError(place, str(error), "Use text, numbers, lists and dicts") from error
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not (isinstance(messages, list) and messages and all(isinstance(each, Mapping) for each in messages)):
            raise ConfigError(place, f"its prompt is {prompt!r}", "Write text, or a list of chat messages")
        if kind.system and messages[0].get("role") != "system":
            messages = [{"role": "system", "content": kind.system}, *messages]
        has_user = kind.agent is None and isinstance(values.get(USER), Mapping)
        agent = kind.agent or ("user_sim_agent" if has_user else None)
        row = make_row(
            prompt=messages,
            data_source=kind.name,
            ground_truth=None,
            style="environment",
            ability="environment",
            split=split,
            index=index,
            agent_name=agent or "react_agent",
            extra_info={NAME: kind.name, ROW: text} | ({USER: values[USER]} if has_user else {}),
        )
        if agent is None:
            del row["agent_name"]  # rows without this key use the run's default agent
        rows.append(row)
    if not rows:
        raise ConfigError(where, f"there are no rows in the {split!r} split", "Yield at least one row for each split")
    return rows


def row_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the environment's author wrote into the row."""
    values: dict[str, Any] = json.loads((row.get("extra_info") or {}).get(ROW) or "{}")
    return values


def split_of(number: int) -> str:
    """Return the split of a row in a file without a `split` column; every eighth row is a test row."""
    return SPLITS[number % 8 == 7]


def tool_names(cls: type) -> list[str]:
    """Return the names of a class's public methods, including inherited methods, in the order of their definition."""
    names = [name for name, _ in _functions(cls) if not name.startswith("_") and name not in OWN]
    return list(dict.fromkeys(names))


def functions_of(cls: type) -> Iterator[Callable[..., Any]]:
    """Yield the functions that a class and its bases define, unwrapped from their decorators."""
    for _, function in _functions(cls):
        yield inspect.unwrap(function)


def _functions(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for base in reversed(cls.__mro__):
        if base not in (object, Environment):
            for name, value in vars(base).items():
                function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if inspect.isfunction(function):
                    yield name, function


def blocking_calls(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the problem and the remedy for each call that would block the event loop or cannot work in a run."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    refused = _REFUSED_IN_ASYNC if inspect.iscoroutinefunction(function) else _REFUSED
    file, _, first = defined_at(function).rpartition(":")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (call := ast.unparse(node.func)) in refused:
            problem, remedy = refused[call]
            yield f"{function.__qualname__} ({file}:{int(first) + node.lineno - 1}) calls {call}{problem}", remedy
