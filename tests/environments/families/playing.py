"""Plays a row of an environment through `EnvironmentSession`, as an episode does."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agent_rl.environments import EnvironmentSession, load_environment
from agent_rl.environments.kind import environment_rows, row_values
from agent_rl.errors import ToolError
from agent_rl.trajectory import StopReason, Trajectory

__all__ = ["Action", "Played", "Rollouts", "episode", "play", "session", "values"]

Action = str | tuple[str, dict[str, Any]]
"""A message, or the call of a tool."""
Rollouts = Mapping[str, Callable[[dict[str, Any]], tuple[list[Action], float]]]
"""For each environment of a family: the actions that solve a row, and the reward that the package gives for them."""


class Played(NamedTuple):
    """The texts that the agent read, None at the end of a game, and the reward."""

    texts: list[str | None]
    reward: float
    done: bool


def values(target: str, split: str = "train", index: int = 0) -> dict[str, Any]:
    return row_values(environment_rows(load_environment("name", target), split, seed=0)[index])


def session(target: str, row: Mapping[str, Any]) -> EnvironmentSession:
    return EnvironmentSession(load_environment("name", target), row, 60.0, Trajectory([], StopReason.ERROR))


async def episode(target: str, row: Mapping[str, Any], actions: Sequence[Action]) -> Played:
    opened = session(target, row)
    try:
        texts = [await opened.reset()]
        for action in actions:
            if isinstance(action, str):
                texts.append((await opened.step(action))[0])
                if texts[-1] is None:
                    break
            else:
                try:
                    texts.append((await opened.call(*action)).text)
                except ToolError as error:  # the agent reads it
                    texts.append(str(error))
        reward = await opened.reward()
        assert isinstance(reward, float)
        return Played(texts, reward, opened.done)
    finally:
        await opened.close()


def play(target: str, row: Mapping[str, Any], actions: Sequence[Action]) -> Played:
    return asyncio.run(episode(target, row, actions))
