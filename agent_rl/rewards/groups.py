"""`Group`: collects the samples of one prompt during training, so that they are scored together.

verl runs the samples of a prompt as tasks of one process and scores each when it ends. If a component needs the whole
group, each task waits here until the other tasks have ended or failed; then all are scored at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from agent_rl.rewards.compose import Reward
from agent_rl.trajectory import Score, Trajectory

__all__ = ["Group", "current"]


@dataclass(slots=True)
class _Waiting:
    trajectory: Trajectory
    verdict: float | None
    result: asyncio.Future[Score]


@dataclass
class Group:
    """The tasks of one prompt.

    Attributes:
        number: of its tasks, each of which calls `join` first.
    """

    number: int
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    _waiting: dict[asyncio.Task[Any], _Waiting] = field(default_factory=dict)
    _reward: Reward | None = None
    _scoring: asyncio.Task[None] | None = None

    def join(self) -> None:
        """Make the current task one of the group."""
        task = asyncio.current_task()
        assert task is not None
        _groups[task] = self
        self._tasks.append(task)
        task.add_done_callback(lambda _: self._go_on())

    async def score(self, reward: Reward, trajectory: Trajectory, verdict: float | None) -> Score:
        """The score of the current task's trajectory; each task of the group calls it once.

        Raises:
            UnscoredError: as `Reward.score`.
            ConfigError: as `Reward.score`.
        """
        task = asyncio.current_task()
        assert task is not None
        waiting = self._waiting[task] = _Waiting(trajectory, verdict, asyncio.get_running_loop().create_future())
        self._reward = reward
        self._go_on()
        return await waiting.result

    def _go_on(self) -> None:
        if self._reward is None or self._scoring is not None or len(self._tasks) < self.number:
            return
        if all(task.done() or task in self._waiting for task in self._tasks):
            self._scoring = asyncio.get_running_loop().create_task(self._score_all(self._reward))

    async def _score_all(self, reward: Reward) -> None:
        group = [waiting for waiting in self._waiting.values() if not waiting.result.done()]
        try:
            trajectories = [waiting.trajectory for waiting in group]
            results = await reward.score_group(trajectories, verdicts=[waiting.verdict for waiting in group])
        except Exception as error:  # noqa: BLE001 - raised in every task that waits
            results = [error] * len(group)
        for waiting, result in zip(group, results, strict=True):
            if waiting.result.done():  # its task was cancelled
                continue
            if isinstance(result, Exception):
                waiting.result.set_exception(result)
            else:
                waiting.result.set_result(result)


_groups: WeakKeyDictionary[asyncio.Task[Any], Group] = WeakKeyDictionary()


def current() -> Group | None:
    """The group of the current task; None if it has none."""
    task = asyncio.current_task()
    return None if task is None else _groups.get(task)
