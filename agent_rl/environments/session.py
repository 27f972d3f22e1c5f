"""`EnvironmentSession`: one instance of an environment, from `reset` to `get_reward`."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from agent_rl.environments.kind import OWN, EnvironmentType
from agent_rl.errors import FatalError, ToolError, UnscoredError
from agent_rl.settings.user_code import BrokenCallError, is_outage
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.base import ToolOutput
from agent_rl.tools.functions import as_output, converted
from agent_rl.trajectory import Trajectory, plain
from agent_rl.work.concurrency import OneThread, OutOfTime, within

MESSAGE = "message"
"""Key in a turn's notes under which the agent's message to a simulated user is stored."""

_parts: dict[type, frozenset[str]] = {}
"""For each class, the names of the parts in the first reward that an instance returned."""


class EnvironmentSession:
    """The environment of one trajectory. The methods run one after the other, each within a time limit.

    Args:
        kind: the loaded class.
        row: the row's values, which are the arguments of `reset`.
        limit_s: time limit for one method call in seconds.
        trajectory: the trajectory, which the instance may read.

    Raises:
        BrokenCallError: the class's `__init__` raises an exception.
    """

    tools: ClassVar[type[ToolSession]] = ToolSession
    """The class that runs the trajectory's tools."""

    def __init__(
        self,
        kind: EnvironmentType,
        row: Mapping[str, Any],
        limit_s: float,
        trajectory: Trajectory,
    ) -> None:
        self.kind, self.limit_s, self.trajectory = kind, limit_s, trajectory
        self.row = copy.deepcopy(dict(row))
        self._thread = OneThread("agent_rl-environment")
        self._turn = asyncio.Lock()
        self._dropped: str | None = None
        self.instance: Any = self._created()

    def _created(self) -> Any:
        try:
            return self.kind.cls()
        except Exception as error:
            raise BrokenCallError.of(f"{self.kind.name}: __init__", error, self.kind.cls) from error

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools of the row's environment."""
        return self.kind.specs

    @property
    def done(self) -> bool:
        """Whether the environment has ended the episode."""
        return bool(self.instance.done)

    async def reset(self) -> str | None:
        """Begin the trajectory; return the text that follows the prompt, or None."""
        self.instance.trajectory = self.trajectory
        self.instance.random = random.Random(json.dumps(self.row, sort_keys=True, default=str))
        text = await self.run("reset", **self.row)
        if text is not None and not isinstance(text, str):
            raise self._bug("reset", TypeError(f"it returned {text!r}, but it must return text or None"))
        await self._note_state()
        return text

    async def opened(self, opening: str) -> Any:
        """Begin the trajectory; return the content of the prompt's last message.

        Args:
            opening: the content that the prompt's last message has in the row.
        """
        text = await self.reset()
        return f"{opening}\n\n{text}" if text else opening

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool.

        Raises:
            ToolError: the environment has ended the episode, or the method raised this error, whose `reward` is then
                the turn's reward.
        """
        async with self._turn:
            if self.done:
                raise ToolError("the episode is over")
            try:
                result = await self.run(name, **converted(self.kind.arguments.get(name), arguments))
            except ToolError as error:
                error.reward = self._turn_reward()
                raise
            try:
                output = as_output(result)
            except (TypeError, ValueError) as error:
                raise self._bug(name, error) from error
            await self._note_state()
            if (reward := self._turn_reward()) is not None:
                output = replace(output, reward=reward + (output.reward or 0.0))
            return output

    async def step(self, message: str) -> tuple[str | None, float | None]:
        """Answer a turn without a call; return the world's text (None at the end) and the turn's reward."""
        self.instance.answer = message
        if self.done or not self.kind.has("step"):
            return None, None
        text = await self.run("step", message)
        if text is not None and not isinstance(text, str):
            raise self._bug("step", TypeError(f"it returned {text!r}, but it must return text, or None at the end"))
        await self._note_state()
        return (None if self.done else text), self._turn_reward()

    async def reward(self) -> float | dict[str, float]:
        """Return the reward: a number, or its parts by name."""
        if self.trajectory.answer is not None:
            self.instance.answer = self.trajectory.answer
        value = await self.run("get_reward")
        parts = value if isinstance(value, Mapping) else {"": value}
        if not parts:
            raise self._bug("get_reward", TypeError("it returned no parts"))
        for name, part in parts.items():
            try:
                is_number = math.isfinite(part) and not isinstance(part, str)
            except (TypeError, ValueError, RuntimeError):  # math.isfinite raises an error for an array of numbers
                is_number = False
            if not is_number:
                what = f"part {name!r} is {part!r}" if name else f"it returned {part!r}"
                raise self._bug("get_reward", TypeError(f"{what}, not a finite number"))
        if (known := _parts.setdefault(self.kind.cls, frozenset(parts))) != parts.keys():
            problem = f"it returned the parts {sorted(parts)} after the parts {sorted(known)}"
            raise self._bug("get_reward", TypeError(f"{problem}, but a reward must always have the same parts"))
        numbers = {str(name): float(part) for name, part in parts.items()}
        return numbers if isinstance(value, Mapping) else numbers[""]

    async def close(self) -> None:
        """Release the thread; a hanging method keeps the thread until the method returns."""
        self._thread.close()

    async def _note_state(self) -> None:
        """If the class defines `state_key`, store the state in the last turn's notes, or before any turn in `info`."""
        if self.kind.has("state_key"):
            notes = self.trajectory.turns[-1].notes if self.trajectory.turns else self.trajectory.info
            notes["state"] = plain("state_key", await self.run("state_key"))

    def _turn_reward(self) -> float | None:
        reward, self.instance.turn_reward = self.instance.turn_reward, 0.0
        return reward or None

    async def run(self, name: str, /, *values: Any, **arguments: Any) -> Any:
        """Run a plain method on the trajectory's thread, or an `async` method on the event loop."""
        return await self.run_function(name, getattr(self.instance, name), *values, **arguments)

    async def run_function(self, name: str, function: Callable[..., Any], /, *values: Any, **arguments: Any) -> Any:
        """Run a function, and report its errors as if it were the method with this name; see `run`."""
        try:
            return await self.timed(name, function, *values, **arguments)
        except Exception as error:
            is_observation = isinstance(error, ToolError) and name not in OWN
            if is_observation or isinstance(error, FatalError) or is_outage(error):
                raise
            raise self._bug(name, error) from error

    async def timed(self, name: str, function: Callable[..., Any], /, *values: Any, **arguments: Any) -> Any:
        """Run a function within the time limit, and pass on its exceptions unchanged."""
        if self._dropped:
            raise UnscoredError(self._dropped)
        late = f"{self.kind.name}.{name} did not finish within {self.limit_s:g} s"
        try:
            call = partial(function, *values, **arguments)
            is_async = inspect.iscoroutinefunction(function)
            return await within(self.limit_s, call() if is_async else self._thread.run(call))
        except OutOfTime:
            self._dropped = late
            raise UnscoredError(late) from None
        except asyncio.CancelledError:  # the function may still be running in its thread
            self._dropped = late
            raise

    def _bug(self, name: str, error: Exception) -> BrokenCallError:
        return BrokenCallError.of(f"{self.kind.cls.__name__}.{name}", error, getattr(self.kind.cls, name, None))


def state_of(instance: Any) -> dict[str, bytes]:
    """Return the pickled attributes of an instance, without those that cannot be pickled."""
    state = {}
    for name, value in getattr(instance, "__dict__", {}).items():
        if name not in ("random", "trajectory"):
            try:
                state[name] = pickle.dumps(value)
            except Exception:  # noqa: BLE001 - pickling an object may raise any error
                continue
    return state
