"""`EnvironmentSession`: one instance of an environment, from `reset` to `get_reward`."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from agent_rl.environments.environment import Environment
from agent_rl.environments.loading import EnvironmentType, load_environment
from agent_rl.errors import ConfigError, FatalError, ToolError, UnscoredError, did_you_mean
from agent_rl.settings.user_code import BrokenCallError, is_outage
from agent_rl.tools.base import ToolOutput
from agent_rl.tools.functions import as_output, converted
from agent_rl.trajectory import Trajectory
from agent_rl.work.concurrency import OneThread, OutOfTime, within

__all__ = ["ROW", "EnvironmentSession", "open_environment", "row_values"]

NAME, ROW = "environment", "environment_row"
"""Keys of `extra_info`: the name of the row's environment, and the row's values as JSON text."""

_parts: dict[type, frozenset[str]] = {}
"""The names of the reward's parts that each class has returned first."""


class EnvironmentSession:
    """The environment of one trajectory. Its methods run one after the other, within a time limit.

    Args:
        kind: the loaded class.
        row: the row's values, the arguments of `reset`.
        limit_s: seconds that one method may take.
        trajectory: the trajectory, which the instance may read.
        seed: the seed of `random`; None: it depends on the row's values.

    Raises:
        BrokenCallError: the class's `__init__` raises.
    """

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
        try:
            self.instance: Environment = kind.cls()
        except Exception as error:
            raise BrokenCallError.of(f"{kind.name}: __init__", error, kind.cls) from error

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
            raise self._bug("reset", TypeError(f"it returned {text!r}; it must return text, or nothing"))
        return text

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool.

        Raises:
            ToolError: the environment has ended the episode, or the method raised it.
        """
        async with self._turn:
            if self.done:
                raise ToolError("the episode is over")
            output = as_output(await self.run(name, **converted(self.kind.arguments.get(name), arguments)))
            if (reward := self._turn_reward()) is not None:
                output.reward = reward + (output.reward or 0.0)
            return output

    async def step(self, message: str) -> tuple[str | None, float | None]:
        """Answer a turn without a call; return the world's text, None at the end, and the reward of the turn."""
        self.instance.answer = message
        if not self.kind.has("step"):
            return None, None
        text = await self.run("step", message)
        if text is not None and not isinstance(text, str):
            raise self._bug("step", TypeError(f"it returned {text!r}; it must return text, or None at the end"))
        return (None if self.done else text), self._turn_reward()

    async def reward(self) -> float | dict[str, float]:
        """Return the reward: a number, or its parts by name."""
        if self.trajectory.answer is not None:
            self.instance.answer = self.trajectory.answer
        value = await self.run("get_reward")
        parts = value if isinstance(value, Mapping) else {"": value}
        for name, part in parts.items():
            number = part.item() if hasattr(part, "item") else part
            if not isinstance(number, int | float) or not math.isfinite(number):
                what = f"part {name!r} is {part!r}" if name else f"it returned {part!r}"
                raise self._bug("get_reward", TypeError(f"{what}, not a finite number"))
        if (known := _parts.setdefault(self.kind.cls, frozenset(parts))) != parts.keys():
            problem = f"it returned the parts {sorted(parts)}, and earlier {sorted(known)}"
            raise self._bug("get_reward", TypeError(f"{problem}; a reward always has the same parts"))
        numbers = {str(name): float(part) for name, part in parts.items()}
        return numbers if isinstance(value, Mapping) else numbers[""]

    async def close(self) -> None:
        """Release the thread; a method that hangs keeps it until it returns."""
        self._thread.close()

    def _turn_reward(self) -> float | None:
        reward, self.instance.turn_reward = self.instance.turn_reward, 0.0
        return reward or None

    async def run(self, name: str, /, *values: Any, **arguments: Any) -> Any:
        """Run a method: a plain one on the trajectory's thread, an `async` one on the event loop."""
        if self._dropped:
            raise UnscoredError(self._dropped)
        method = getattr(self.instance, name)
        self._dropped = f"{self.kind.name}.{name} did not finish within {self.limit_s:g} s"  # stays if it is cancelled
        try:
            result = await within(self.limit_s, self._awaited(method, values, arguments))
        except OutOfTime:
            raise UnscoredError(self._dropped) from None
        except (ToolError, UnscoredError, FatalError):
            self._dropped = None
            raise
        except Exception as error:
            self._dropped = None
            if is_outage(error):
                raise
            raise self._bug(name, error) from error
        self._dropped = None
        return result

    async def _awaited(self, method: Callable[..., Any], values: Any, arguments: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(method):
            return await method(*values, **arguments)
        return await self._thread.run(lambda: method(*values, **arguments))

    def _bug(self, name: str, error: Exception) -> BrokenCallError:
        return BrokenCallError.of(f"{self.kind.cls.__name__}.{name}", error, getattr(self.kind.cls, name, None))


def open_environment(
    names: Mapping[str, str], row: Mapping[str, Any], limit_s: float, trajectory: Trajectory
) -> EnvironmentSession | None:
    """Return a session of the row's environment, or None for a row without one.

    Args:
        names: `agent_rl.environments`.
        row: the row's columns.
        limit_s: seconds that one method may take.
        trajectory: the row's trajectory.

    Raises:
        ConfigError: the row's environment is not among the names, or cannot be loaded.
    """
    info = row.get("extra_info") or {}
    if (name := info.get(NAME)) is None:
        return None
    if name not in names:
        raise ConfigError(f"extra_info.{NAME}", f"there is no environment {name!r}", did_you_mean(str(name), names))
    return EnvironmentSession(load_environment(name, names[name]), row_values(row), limit_s, trajectory)


def row_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the author gave the row."""
    values: dict[str, Any] = json.loads((row.get("extra_info") or {}).get(ROW) or "{}")
    return values
