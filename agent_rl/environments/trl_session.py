"""A TRL environment (`TrlType`) and its session for one trajectory (`TrlSession`), called as in `GRPOTrainer`."""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import math
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

from agent_rl.data.contract import IMAGE
from agent_rl.environments.kind import SESSION, EnvironmentType
from agent_rl.environments.session import EnvironmentSession, state_of
from agent_rl.errors import ConfigError, ToolError, UnscoredError, did_you_mean
from agent_rl.settings.user_code import BrokenCallError
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.base import ToolOutput
from agent_rl.trajectory import Message, ToolCall, ToolResult, ToolStatus, Trajectory, plain, plain_reward
from agent_rl.work.concurrency import OneThread, together

ROWS = {"train": 256, "test": 32}
"""Number of rows in each split if the file contains no rows."""
EMPTY_PROMPT = "(The environment writes this message.)"
"""Text that replaces an empty message in a row, because rows must not contain empty messages."""
DIFFERS = "reset_differs"
"""Name of the reward part that is 1 if a trajectory starts in a different state than the row's first trajectory."""

logger = logging.getLogger(__name__)


@dataclass
class Factory:
    """An environment factory, with the class, the methods and the rewards of its instances.

    Attributes:
        make: function that returns a new instance.
        cls: the class of the instances.
        specs: the tools, including the file's own `tools`.
        methods: names of the tools that are methods.
        rewards: the reward functions by name; None stands for the class's `get_reward`.
        pool: instances that wait for a trajectory, each with the thread on which it was created.
    """

    make: Callable[[], Any]
    cls: Any
    specs: list[ToolSpec]
    methods: list[str]
    rewards: Mapping[str, Callable[..., Any] | None]
    pool: list[tuple[Any, OneThread]] = field(default_factory=list)
    beginnings: dict[str, bytes] = field(default_factory=dict)
    """Digests of the state in which the first sample of each recent row started."""


@dataclass(frozen=True, eq=False)
class TrlType(EnvironmentType):
    """A loaded TRL file.

    Attributes:
        factories: the factories by name; the name is None unless the file contains a dict.
        functions: the tools that are functions instead of methods.
        data: the rows of each split; if empty, all rows are equal.
    """

    agent: ClassVar[str] = "tool_call_agent"
    resets_alike: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = (DIFFERS,)
    multi_turn: ClassVar[Mapping[str, Any]] = {"max_assistant_turns": 64, "max_tool_response_length": 65_536}
    system: ClassVar[str] = ""
    rewards_turns: ClassVar[bool] = False

    factories: Mapping[str | None, Factory]
    functions: Sequence[Callable[..., Any]]
    data: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the reward functions, and of the classes with `get_reward`."""
        return tuple(dict.fromkeys(name for factory in self.factories.values() for name in factory.rewards))

    @property
    def rows_place(self) -> str:
        """The source of the rows, which error messages name."""
        return self.target

    def has(self, method: str) -> bool:
        """Always False, because optional methods of `agent_rl.Environment` do not apply to TRL."""
        return False

    def factory(self, row: Mapping[str, Any], place: str) -> Factory:
        """Return the factory of a row.

        Raises:
            ConfigError: the dict of factories contains no factory for this row.
        """
        name = None if None in self.factories else row.get("environment")
        if name not in self.factories:
            remedy = did_you_mean(str(name), map(str, self.factories))
            raise ConfigError(f"{place}, column environment", f"environment_factory has no {name!r}", remedy)
        return self.factories[name]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a split; without data, every row has one empty message."""
        return self.data.get(split) or [{"prompt": [{"role": "user", "content": ""}]}] * ROWS[split]

    def prompt(self, values: Any, place: str) -> Any:
        """Return the messages of a row."""
        messages = values.get("prompt", "")
        if isinstance(messages, str):
            return messages or EMPTY_PROMPT
        return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] or EMPTY_PROMPT}]

    def reset_call(self, values: Mapping[str, Any], place: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """Return the `reset` method of a row's environment, with the row's columns as arguments."""
        arguments = dict(values)
        if None not in self.factories:
            arguments.pop("environment", None)
        return self.factory(values, place).cls.reset, arguments


class _Tools(ToolSession):
    """Runs a trajectory's tools: in each turn, first the plain calls in order, then all `async` calls together."""

    def __init__(self, specs: Sequence[ToolSpec], **options: Any) -> None:
        super().__init__(specs, **options | {"max_parallel_calls": None})
        self._environment: TrlSession = options["shared"][SESSION]

    def ordered(self, calls: list[ToolCall]) -> list[ToolCall]:
        return sorted(calls, key=self._is_late)

    async def _answers(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        first = [await self._answer(call) for call in calls if not self._is_late(call)]
        return first + await together([self._answer(call) for call in calls if self._is_late(call)])

    async def _execute(self, call: ToolCall, result: ToolResult) -> ToolOutput:
        if call.name in self._slots and call.name not in self._environment.functions:
            return await super()._execute(call, result)
        return await self._environment.answer(call, result)

    def _is_late(self, call: ToolCall) -> bool:
        function = self._environment.functions.get(call.name)
        try:
            return inspect.iscoroutinefunction(function) and bool(inspect.signature(function).bind(**call.arguments))
        except TypeError:  # wrong arguments: the call fails before anything is awaited
            return False


class TrlSession(EnvironmentSession):
    """A TRL environment in one trajectory. As in TRL, the instance is returned to a pool at the end."""

    kind: TrlType
    tools = _Tools

    def __init__(self, kind: TrlType, row: Mapping[str, Any], limit_s: float, trajectory: Trajectory) -> None:
        super().__init__(kind, row, limit_s, trajectory)
        self._factory = kind.factory(self.row, kind.name)
        self.functions: dict[str, Callable[..., Any]] = {}
        self._differs = 0.0

    def _created(self) -> Any:
        return None  # `reset` takes an instance from the pool, or creates one on the trajectory's thread

    @property
    def done(self) -> bool:
        """Always False, because a TRL environment cannot end the episode."""
        return False

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools of the row's environment."""
        return self._factory.specs

    async def reset(self) -> Any:
        """Begin the trajectory; return the text or blocks that follow the prompt, or None."""
        factory = self._factory
        if factory.pool:
            self.instance, self._thread = factory.pool.pop()
        else:
            self.instance = await self.run_function("__init__", factory.make)
        methods = [getattr(self.instance, name) for name in factory.methods]
        self.functions = {each.__name__: each for each in (*self.kind.functions, *methods)}
        observation = await self.run("reset", **self.kind.reset_call(self.row, self.kind.name)[1])
        row = self.trajectory.id.rpartition("_")[0]
        beginning = {**state_of(self.instance), **state_of(SimpleNamespace(observation=observation))}
        digest = hashlib.sha256(pickle.dumps(beginning)).digest()
        if row and factory.beginnings.setdefault(row, digest) != digest:
            self._differs = 1.0
            _warn_once(factory.cls)
        while len(factory.beginnings) > 4096:
            del factory.beginnings[next(iter(factory.beginnings))]
        return observation

    async def opened(self, opening: Any) -> Any:
        """Begin the trajectory; return the content of the prompt's last message, including the text from `reset`."""
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
        except TypeError:
            problem = f"it returned {observation!r:.80}; it must return text, a list of blocks, or None"
            raise self._bug("reset", TypeError(problem)) from None

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool."""
        return await self.answer(ToolCall(name, arguments), ToolResult("", name, ""))

    async def answer(self, call: ToolCall, result: ToolResult) -> ToolOutput:
        """Answer a call by the policy; any exception that a tool raises becomes an observation."""
        if (function := self.functions.get(call.name)) is None:
            result.status = ToolStatus.UNKNOWN_TOOL
            return ToolOutput(str({"error": f"Tool {call.name} not found."}))
        is_async = inspect.iscoroutinefunction(function)
        try:
            value = await self.timed(
                call.name, function if is_async else functools.partial(_plain_call, function), **call.arguments
            )
        except Exception as error:  # TRL shows the policy every error that a tool raises
            if self._dropped and isinstance(error, UnscoredError):
                raise
            result.status, value = ToolStatus.ERROR, {"error": str(error)}
        if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
            return ToolOutput(str(value))
        text = "".join(IMAGE if block.get("type") == "image" else block.get("text", "") for block in value)
        return ToolOutput(text, images=[block["image"] for block in value if block.get("type") == "image"])

    async def step(self, message: str) -> tuple[str | None, float | None]:
        """End the episode, because the turn has no call."""
        return None, None

    async def reward(self) -> dict[str, float]:
        """Return a reward for each function, except for those that return None."""
        lists = self._lists()
        calls = [
            (name, function or self.instance.get_reward, lists if function else {})
            for name, function in self._factory.rewards.items()
        ]
        parts: dict[str, float] = {}
        for name, function, arguments in sorted(calls, key=lambda call: _is_async(call[1])):
            called = name if arguments else "get_reward"
            result = await self.run_function(called, function, **arguments)
            try:
                (value,) = result if arguments else (result,)
                if value is not None and not math.isnan(value):
                    parts[name] = plain_reward("the reward", float(value)) or 0.0
            except (TypeError, ValueError):
                expected = "a list with one number or None" if arguments else "a number or None"
                raise self._bug(called, TypeError(f"it returned {result!r:.80}, not {expected}")) from None
        return {**parts, DIFFERS: self._differs} if parts else {}

    def _lists(self) -> dict[str, Any]:
        """Return the keyword arguments for reward functions, with a one-item list where TRL has one item per sample."""

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
        """Return the instance to the pool, unless one of its methods is still running."""
        if self._dropped or self.instance is None:
            await super().close()
        else:
            self._factory.pool.append((self.instance, self._thread))

    def _bug(self, name: str, error: Exception) -> BrokenCallError:
        cls, function = self._factory.cls, self._factory.rewards.get(name)
        what = f"the reward {name}" if function else f"{cls.__name__}.{name}"
        return BrokenCallError.of(what, error, function or getattr(cls, name, None))


def _plain_call(function: Callable[..., Any], /, **arguments: Any) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # asyncio cannot pass a StopIteration from a worker thread
        raise ToolError(str(error)) from error


@functools.cache
def _warn_once(cls: type) -> None:
    problem = "reset differs between the samples of a row: the group's rewards compare different tasks"
    logger.warning("%s.%s. Seed reset with a column of the row", cls.__qualname__, problem)


def _is_async(function: Any) -> bool:
    function = function.func if isinstance(function, functools.partial) else function
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _message(message: Message) -> dict[str, Any]:
    images = [{"type": "image", "image": image} for image in message.images]
    content = [*images, {"type": "text", "text": message.content}] if images else message.content
    return {"role": message.role, "content": content}


def _completion(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return the messages after the prompt, in the form in which TRL passes them to reward functions."""
    messages: list[dict[str, Any]] = []
    for turn in trajectory.turns:
        functions = [{"name": call.name, "arguments": call.arguments} for call in turn.calls]
        calls = {"tool_calls": [{"type": "function", "function": each} for each in functions]} if functions else {}
        messages.append({"role": "assistant", "content": turn.text.partition("<tool_call>")[0].strip(), **calls})
        messages += [{**_message(Message("tool", result.text, images=result.images)), "name": result.name}
                     for result in turn.results]  # fmt: skip
    if not messages or trajectory.answer is not None:
        messages[-1:] = [{"role": "assistant", "content": trajectory.answer or ""}]
    return messages
