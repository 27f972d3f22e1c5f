"""The base class of a task in one file.

Each trajectory has its own instance, whose attributes are the trajectory's state. Every public method that a subclass
adds is a tool, and the method's type hints and docstring describe the tool to the policy.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from agent_rl.trajectory import Trajectory


class Environment:
    """Base class of a task, with its rows, its tools, the state of a trajectory, and the reward.

    The class's docstring is the system message. A tool returns text, or data that the policy reads as JSON. If a tool
    raises `agent_rl.errors.ToolError`, the policy reads the message; any other exception is a bug in the class, which
    leaves the trajectory unscored. The calls of a trajectory run one after the other: plain methods on the trajectory's
    own thread, `async` methods on the event loop. Each call has a time limit of `agent_rl.budget.tool_timeout_s`
    seconds; after a timeout the instance is dropped and the trajectory is unscored.
    """

    data: ClassVar[str | None] = None
    """A file of rows (parquet or JSON Lines) that replaces the `rows` method, relative to the class's file; every
    eighth row is held out for the `test` split, unless a `split` column assigns the rows."""

    random: random.Random
    """The trajectory's random number generator, whose seed depends only on the row."""
    trajectory: Trajectory
    """The record of the episode so far."""
    answer: str | None = None
    """The agent's last message without a call, or None before the first such message."""
    done: bool = False
    """Whether the episode is over; a tool sets this to True to end the episode after its call."""
    turn_reward: float = 0.0
    """The sum of the rewards that `reward_turn` added for the current turn."""

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of a split, each a dict with `prompt` (text or chat messages) and the arguments of `reset`.

        `rows` is called on a separate instance, which is then discarded.

        Args:
            split: `train` or `test`.
            seed: seed for generating rows.
        """
        raise NotImplementedError

    def reset(self, *_: Any, **row: Any) -> str | None:
        """Begin a trajectory; the arguments are copies of the row's values.

        All samples of a row must begin in the same state. A returned string is added to the prompt after an empty line.
        """
        return None

    def step(self, message: str) -> str | None:
        """Answer a turn without a call, as the world would; returning None ends the episode.

        If a class does not define `step`, the first turn without a call ends the episode.
        """
        raise NotImplementedError("the class has no step method that answers a message")

    def get_reward(self) -> float | Mapping[str, float]:
        """Return the reward of the trajectory: a number, or named parts with the same names in every trajectory."""
        raise NotImplementedError

    def solve(self) -> str | None:
        """Solve the row as an expert would: every tool call becomes a turn, and the returned value is the answer.

        A small model learns from these turns in its cold start.
        """
        raise NotImplementedError

    def state_key(self) -> Any:
        """Return JSON data that identifies the current state.

        The trace stores the state after a turn as the turn's `notes["state"]`, and the first state as `info["state"]`.

        `algo=gigpo` compares the turns of a prompt's samples that start in the same state.
        """
        raise NotImplementedError

    def say(self, message: str) -> str | None:
        """Send a message from `solve` to the world; return the answer that `step` gives."""
        self.answer = message
        return self.step(message)

    def reward_turn(self, reward: float) -> None:
        """Add a reward to the current turn; the `turns` component sums these rewards, and has weight 1."""
        self.turn_reward += reward
