"""Plays a row of an environment through `EnvironmentSession`, as an episode does."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_rl.environments import EnvironmentSession, load_environment
from agent_rl.environments.rows import environment_rows
from agent_rl.environments.session import row_values
from agent_rl.trajectory import StopReason, Trajectory

__all__ = ["Played", "play", "session", "values"]


class Played(NamedTuple):
    """The texts that the agent read, None at the end of a game, and the reward."""

    texts: list[str | None]
    reward: float
    done: bool


def values(target: str, split: str = "train", index: int = 0) -> dict[str, Any]:
    return row_values(environment_rows(load_environment("name", target), split, seed=0)[index])


def session(target: str, row: dict[str, Any]) -> EnvironmentSession:
    return EnvironmentSession(load_environment("name", target), row, 60.0, Trajectory([], StopReason.ERROR))


def play(target: str, row: dict[str, Any], actions: Sequence[Any], tool: str = "") -> Played:
    """Do all actions, as messages or as calls of a tool."""

    async def episode() -> Played:
        opened = session(target, row)
        try:
            texts = [await opened.reset()]
            for action in actions:
                if tool:
                    texts.append((await opened.call(tool, {"action": action})).text)
                else:
                    text, _ = await opened.step(action)
                    texts.append(text)
            reward = await opened.reward()
            assert isinstance(reward, float)
            return Played(texts, reward, opened.done)
        finally:
            await opened.close()

    return asyncio.run(episode())
