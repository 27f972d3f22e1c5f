"""Runs environments of TRL: the file of a `GRPOTrainer(environment_factory=...)`, under TRL's contract.

A file counts as TRL's if it has `environment_factory` (a callable without arguments, or a dict of them by the row's
column `environment`), or no `agent_rl.Environment` and one class with `reset`. It may also have `tools`,
`reward_funcs`, `train_dataset` and `eval_dataset`, as the trainer's arguments. A target adds files with ` + `:
`my_trl.py + rewards.py:brevity + rows.parquet`.

Two differences from TRL: a call that takes longer than `agent_rl.budget.tool_timeout_s` leaves its trajectory unscored,
and reward functions get the completions one by one, without `completion_ids`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import logging
import math
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from agent_rl.data.contract import IMAGE
from agent_rl.data.sources import read_raw
from agent_rl.environments.environment import Environment
from agent_rl.environments.loading import HELD_OUT, EnvironmentType, blocking_calls
from agent_rl.environments.method_tool import MethodTool
from agent_rl.environments.session import EnvironmentSession, state_of
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import TERMS
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object, load_file
from agent_rl.settings.user_code import defined_at
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.base import ToolOutput
from agent_rl.trajectory import Message, ToolCall, ToolResult, ToolStatus, Trajectory, plain
from agent_rl.work.concurrency import OneThread, together

__all__ = ["ADDED", "TrlSession", "TrlType", "absolute", "trl_environment"]

ADDED = " + "
"""Stands in a target between the environment, reward functions and a file of rows."""
EMPTY_PROMPT = "(The environment writes this message.)"
"""Stands in rows for an empty message, which the contract of rows does not allow."""
DIFFERS = "reset_differs"
ROWS = {"train": 256, "test": 32}
"""Numbers of rows if the file has none."""
MOST_ROWS = 100_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Spec(ToolSpec):
    returns: Any = None

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        if self.returns is not None:
            schema["function"]["return"] = self.returns
        return schema


@dataclass
class _Factory:
    """A factory, the class that it makes, the tools, and instances that wait for a trajectory, with their threads."""

    make: Callable[[], Any]
    cls: type
    specs: list[ToolSpec]
    pool: list[tuple[Any, OneThread]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class TrlType(EnvironmentType):
    """A loaded file of TRL.

    Attributes:
        factories: by name; the only one is called None, unless the file has a dict.
        functions: the tools next to the methods.
        rewards: the reward functions by name.
        data: the rows of each split; empty: all rows are alike.
    """

    agent: ClassVar[str] = "tool_call_agent"
    resets_alike: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = (DIFFERS,)
    multi_turn: ClassVar[Mapping[str, Any]] = {"max_assistant_turns": 64, "max_tool_response_length": 65_536}
    system: ClassVar[str] = ""
    rewards_turns: ClassVar[bool] = False

    factories: Mapping[str | None, _Factory]
    functions: Sequence[Callable[..., Any]]
    rewards: Mapping[str, Callable[..., Any]]
    data: Mapping[str, Sequence[Mapping[str, Any]]]
    beginnings: dict[str, bytes] = field(default_factory=dict)
    """How the first sample of each recent row began."""

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the reward functions, and of the classes with `get_reward`."""
        owners = [each.cls for each in self.factories.values() if _has(each.cls, "get_reward")]
        return tuple(dict.fromkeys([*self.rewards, *map(_part, owners)]))

    @property
    def rows_place(self) -> str:
        """Where the rows come from, for errors."""
        return self.target

    def has(self, method: str) -> bool:
        """Whether the class has an optional method of `agent_rl.Environment`: none counts."""
        return False

    def session(self, row: Mapping[str, Any], limit_s: float, trajectory: Trajectory) -> TrlSession:
        """Return the environment of one trajectory."""
        return TrlSession(self, row, limit_s, trajectory)

    def factory(self, row: Mapping[str, Any], place: str) -> _Factory:
        """Return the factory of a row.

        Raises:
            ConfigError: the row names no factory of the dict.
        """
        name = None if None in self.factories else row.get("environment")
        if name not in self.factories:
            remedy = did_you_mean(str(name), [str(each) for each in self.factories])
            raise ConfigError(f"{place}, column environment", f"environment_factory has no {name!r}", remedy)
        return self.factories[name]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a split; without data, all have one empty message."""
        empty = {"prompt": [{"role": "user", "content": ""}]}
        return self.data.get(split) or [empty] * ROWS[split]

    def prompt(self, values: Any, place: str) -> Any:
        """Return the messages of a row."""
        messages = values.get("prompt", "")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] or EMPTY_PROMPT}]

    def reset_call(self, values: Mapping[str, Any], place: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """Return the method `reset` of a row's environment, and its arguments: the columns."""
        several = None not in self.factories
        arguments = {name: value for name, value in values.items() if not (several and name == "environment")}
        reset: Callable[..., Any] = self.factory(values, place).cls.reset  # type: ignore[attr-defined]
        return reset, arguments


class TrlSession(EnvironmentSession):
    """An environment of TRL in one trajectory. Its instance goes back to a pool, as TRL's does."""

    kind: TrlType

    def __init__(self, kind: TrlType, row: Mapping[str, Any], limit_s: float, trajectory: Trajectory) -> None:
        super().__init__(kind, row, limit_s, trajectory)
        self._factory = kind.factory(self.row, kind.name)
        self.functions: dict[str, Callable[..., Any]] = {}
        self._differs = 0.0

    def _created(self) -> Any:
        return None  # `reset` takes it from the pool, or creates it on its thread

    @property
    def done(self) -> bool:
        """Whether the environment has ended the episode: TRL's cannot."""
        return False

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools of the row's environment."""
        return self._factory.specs

    def tools(self, specs: Sequence[ToolSpec], **options: Any) -> ToolSession:
        """Return the tools of the trajectory, which answer all calls of a turn, as TRL does."""
        return _Tools(self, specs, **options | {"max_parallel_calls": None})

    async def reset(self) -> Any:
        """Begin the trajectory; return the text or blocks that follow the prompt, or None."""
        if self._factory.pool:
            self.instance, self._thread = self._factory.pool.pop()
        else:
            self.instance = await self.run_function("__init__", self._factory.make)
        methods = [getattr(self.instance, name) for name in _tool_names(self._factory.cls)]
        self.functions = {each.__name__: each for each in (*self.kind.functions, *methods)}
        observation = await self.run("reset", **self.kind.reset_call(self.row, self.kind.name)[1])
        self._compare(observation)
        return observation

    def _compare(self, observation: Any) -> None:
        """Note whether the trajectory begins as others of its row do."""
        row, known = self.trajectory.id.rpartition("_")[0], self.kind.beginnings
        beginning = hashlib.sha256(pickle.dumps((repr(observation), state_of(self.instance)))).digest()
        if not row or known.setdefault(row, beginning) == beginning:
            return
        self._differs = 1.0
        if DIFFERS not in known:
            known[DIFFERS] = b""
            text = "%s.reset differs between the samples of a row, so that their rewards compare different tasks"
            logger.warning(text, self._factory.cls.__qualname__)

    async def opened(self, opening: Any) -> Any:
        """Begin the trajectory; return the content of the prompt's last message, with what `reset` appends to it."""
        content = "" if opening == EMPTY_PROMPT else opening
        observation = await self.reset()
        if observation is None:
            return content
        if isinstance(observation, list) and isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if isinstance(observation, str) and isinstance(content, list):
            observation = [{"type": "text", "text": observation}]
        try:
            return content + observation
        except TypeError as error:
            raise self._bug("reset", error) from error

    async def answer(self, call: ToolCall, result: ToolResult) -> ToolOutput:
        """Answer a call of the policy; an exception of the tool is an observation."""
        function = self.functions.get(call.name)
        failed = False

        def observed() -> Any:
            nonlocal failed
            try:
                if function is None:
                    raise ValueError(f"Tool {call.name} not found.")
                return function(**call.arguments)
            except Exception as error:  # noqa: BLE001 - TRL shows each of them to the policy
                failed = True
                return {"error": str(error)}

        async def awaited() -> Any:
            nonlocal failed
            value = observed()
            try:
                return await value if inspect.isawaitable(value) else value
            except Exception as error:  # noqa: BLE001 - as above
                failed = True
                return {"error": str(error)}

        value = await self.run_function(call.name, awaited if inspect.iscoroutinefunction(function) else observed)
        if failed:
            result.status = ToolStatus.ERROR if function else ToolStatus.UNKNOWN_TOOL
        if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
            return ToolOutput(str(value))
        text = "".join(IMAGE if block.get("type") == "image" else block.get("text", "") for block in value)
        return ToolOutput(text, images=[block["image"] for block in value if block.get("type") == "image"])

    async def step(self, message: str) -> tuple[str | None, float | None]:
        """Answer a turn without a call: it ends the episode."""
        return None, None

    async def reward(self) -> dict[str, float]:
        """Return the reward of each function, without those that return None."""
        arguments = self._reward_arguments()
        functions = {name: (function, arguments) for name, function in self.kind.rewards.items()}
        if _has(self._factory.cls, "get_reward"):
            functions[_part(self._factory.cls)] = (self.instance.get_reward, {})
        parts: dict[str, float] = {}
        for name, (function, values) in sorted(functions.items(), key=lambda item: _is_async(item[1][0])):
            value = await self.run_function(name, function, **values)
            if values:
                if len(value) != 1:
                    raise self._bug(name, ValueError(f"it returned {len(value)} rewards for one completion"))
                value = value[0]
            if value is not None and not math.isnan(number := float(value)):
                parts[name] = number
        return {**parts, DIFFERS: self._differs} if parts else {}

    def _reward_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of reward functions: lists of one."""

        def log(name: str, value: Any) -> None:
            self.trajectory.info.setdefault("logged", {})[name] = plain(f"the value of {name!r}", value)

        return {name: [value] for name, value in self.row.items()} | {
            "prompts": [[_message(message) for message in self.trajectory.prompt]],
            "completions": [_completion(self.trajectory)],
            "environments": [self.instance],
            "trainer_state": SimpleNamespace(global_step=self.trajectory.info.get("step") or 0),
            "log_extra": log,
            "log_metric": log,
        }

    async def close(self) -> None:
        """Put the instance back into the pool, unless a method of it still runs."""
        if self._dropped or self.instance is None:
            self._thread.close()
        else:
            self._factory.pool.append((self.instance, self._thread))


class _Tools(ToolSession):
    """The tools of a trajectory: plain ones run in their order, and then `async` ones together."""

    def __init__(self, environment: TrlSession, specs: Sequence[ToolSpec], **options: Any) -> None:
        super().__init__(specs, **options)
        self._environment = environment

    def ordered(self, calls: list[ToolCall]) -> list[ToolCall]:
        return sorted(calls, key=self._is_late)

    def _is_late(self, call: ToolCall) -> bool:
        function = self._environment.functions.get(call.name)
        if not inspect.iscoroutinefunction(function):
            return False
        try:
            inspect.signature(function).bind(**call.arguments)
        except TypeError:  # it fails when it is called, before it can be awaited
            return False
        return True

    async def _answers(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        first = [await self._answer(call) for call in calls if not self._is_late(call)]
        return first + await together([self._answer(call) for call in calls if self._is_late(call)])

    async def _execute(self, call: ToolCall, result: ToolResult) -> ToolOutput:
        if call.name in self._slots and call.name not in self._environment.functions:
            return await super()._execute(call, result)
        return await self._environment.answer(call, result)


def trl_environment(name: str, target: str, place: Place) -> TrlType | None:
    """Load a file of TRL; return None for another one.

    Args:
        name: its name in `agent_rl.environments`.
        target: `file.py` or `file.py:NAME`, where NAME is a class, a factory or a dict of factories; then, after
            ` + `, reward functions (`file.py:function`) and a file of rows.
        place: the place of the target in the configuration.

    Raises:
        ConfigError: a class, a tool or a reward function cannot be used.
    """
    own, *added = target.split(ADDED)
    file, _, attribute = own.rpartition(":") if not own.endswith(".py") else (own, "", "")
    module = load_file(file, Path.cwd(), place)
    found = find_object(own, place) if attribute else getattr(module, "environment_factory", None)
    found = _only_class(module, own, place) if found is None else found
    if isinstance(found, type) and (issubclass(found, Environment) or not _has(found, "reset")):
        return None
    if not callable(found) and not isinstance(found, dict):
        return None
    functions = list(getattr(module, "tools", None) or ())
    factories = {
        key: _factory(make, functions, place)
        for key, make in (found if isinstance(found, dict) else {None: found}).items()
    }
    rewards = getattr(module, "reward_funcs", None) or []
    rewards = [*(rewards if isinstance(rewards, list | tuple) else [rewards])]
    rewards += [find_object(each, place) for each in added if ".py:" in each]
    kind = TrlType(
        name,
        ADDED.join([f"{module.__file__}:{attribute}" if attribute else str(module.__file__), *map(absolute, added)]),
        next(iter(factories.values())).cls,
        factories,
        functions,
        _named(rewards, place),
        _data(module, [each for each in added if ".py:" not in each], isinstance(found, dict), place),
    )
    if not kind.parts:
        remedy = "Define get_reward(self) or reward_funcs, or add a function: ' + rewards.py:function'"
        raise place.error(f"{own} has no reward", remedy)
    return kind


def absolute(added: str) -> str:
    """Return a part of a target with an absolute path."""
    file, colon, attribute = added.partition(":")
    return f"{Path(file).expanduser().resolve()}{colon}{attribute}"


def _only_class(module: ModuleType, file: str, place: Place) -> type | None:
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    classes = [cls for cls in own if _has(cls, "reset")]
    if any(issubclass(cls, Environment) for cls in own) or not classes:
        return None
    if len(classes) > 1:
        names = ", ".join(cls.__name__ for cls in classes)
        remedy = f"Name one, {file}:{classes[-1].__name__}, or write environment_factory in the file"
        raise place.error(f"{file} has several classes with reset: {names}", remedy)
    return classes[0]


def _factory(make: Any, functions: Sequence[Callable[..., Any]], place: Place) -> _Factory:
    cls = make if isinstance(make, type) else type(make())
    where = f"{cls.__qualname__} ({defined_at(cls)})"
    if not _has(cls, "reset"):
        raise place.error(f"{where} has no reset", "Define reset(self, **row), as TRL needs it")
    if inspect.iscoroutinefunction(cls.reset):
        raise place.error(f"{where}: reset is async, and TRL does not await it", "Write a plain def reset")
    blank = cls.__new__(cls)
    tools = {each.__name__: each for each in (*functions, *(getattr(blank, name) for name in _tool_names(cls)))}
    for function in [*tools.values(), cls.reset, *([cls.get_reward] if _has(cls, "get_reward") else [])]:
        for problem in blocking_calls(inspect.unwrap(function)):
            raise place.error(*problem)
    return _Factory(make, cls, [_spec(tool, place) for tool in tools.values()])


def _spec(tool: Callable[..., Any], place: Place) -> ToolSpec:
    from transformers.utils import get_json_schema

    try:
        schema = get_json_schema(tool)["function"]
    except Exception as error:
        problem = f"TRL cannot describe the tool {tool.__name__} ({defined_at(tool)}): {error}"
        remedy = "Give each argument a type hint and a line below Args: in the docstring"
        raise place.error(problem, remedy) from error
    described = schema["name"], schema["description"], schema["parameters"]
    return _Spec(*described, MethodTool, {"method": tool.__name__}, returns=schema.get("return"))


def _named(functions: Iterable[Any], place: Place) -> dict[str, Callable[..., Any]]:
    """Return reward functions by their names in the reward."""
    named: dict[str, Callable[..., Any]] = {}
    for function in functions:
        code = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
        name = getattr(code, "__name__", type(code).__name__)
        if not callable(function) or hasattr(function, "state_dict"):
            remedy = "Write a function, or give the model as a component of agent_rl.reward"
            raise place.error(f"the reward {function!r:.60} is a model", remedy)
        if "completion_ids" in inspect.signature(function).parameters:
            problem = f"the reward function {name} ({defined_at(code)}) takes completion_ids, which are not kept"
            raise place.error(problem, "Read the text in completions")
        named[f"{name}_reward" if name in TERMS else name] = function
    return named


def _data(module: ModuleType, files: Sequence[str], several: bool, place: Place) -> dict[str, Any]:
    train, test = getattr(module, "train_dataset", None), getattr(module, "eval_dataset", None)
    if files:
        train, test = [raw.value for raw in read_raw(absolute(files[0]))], None
    if train is None:
        if several:
            problem = f"{module.__file__} has a dict of factories and no rows, whose column environment selects one"
            raise place.error(problem, "Write train_dataset in the file, or add one: ' + rows.parquet'")
        return {}
    rows = [dict(row) for row in itertools.islice(train, MOST_ROWS)]
    if test is not None:
        return {"train": rows, "test": [dict(row) for row in itertools.islice(test, MOST_ROWS)]}
    kept = [row for number, row in enumerate(rows) if number % HELD_OUT != HELD_OUT - 1]
    return {"train": kept, "test": rows[HELD_OUT - 1 :: HELD_OUT] or rows}


def _has(cls: type, method: str) -> bool:
    return inspect.isfunction(getattr(cls, method, None))


def _part(cls: type) -> str:
    return f"{cls.__name__}_reward" if cls.__name__ in TERMS else cls.__name__


def _tool_names(cls: type) -> list[str]:
    """Return the names of a class's tools, by TRL's rule: functions on the type, in alphabetical order."""
    names = [name for name, _ in inspect.getmembers(cls, inspect.isfunction)]
    return [name for name in names if name not in ("reset", "get_reward") and not name.startswith("_")]


def _is_async(function: Any) -> bool:
    function = function.func if isinstance(function, functools.partial) else function
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _message(message: Message) -> dict[str, Any]:
    images = [{"type": "image", "image": image} for image in message.images]
    content = [*images, {"type": "text", "text": message.content}] if images else message.content
    return {"role": message.role, "content": content}


def _completion(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return the messages after the prompt, as TRL gives them to reward functions."""
    messages: list[dict[str, Any]] = []
    for turn in trajectory.turns:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text.partition("<tool_call>")[0].strip()}
        if turn.calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in turn.calls]
            message["tool_calls"] = [{"type": "function", "function": function} for function in functions]
        messages.append(message)
        for result in turn.results:
            answer = _message(Message("tool", result.text, images=result.images))
            messages.append(answer | {"name": result.name})
    if not messages or trajectory.answer is not None:
        messages[-1:] = [{"role": "assistant", "content": trajectory.answer or ""}]
    return messages
