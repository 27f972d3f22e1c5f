"""`Group`: collects the samples of one prompt during training, so that they are scored together.

verl runs the samples of a prompt as tasks in one process and scores each sample when its task ends. If a component
needs the whole group, each task waits until the other tasks are ready or have failed; then all are scored together.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agent_rl.rewards.compose import Reward
from agent_rl.trajectory import Score, Trajectory


class Group:
    """The tasks of one prompt.

    Args:
        number: number of tasks; each task calls `join` before anything else.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._tasks: list[asyncio.Task[Any]] = []
        self._waiting: dict[asyncio.Task[Any], tuple[Trajectory, float | None]] = {}
        self._complete = asyncio.Event()
        self._scoring: asyncio.Task[dict[asyncio.Task[Any], Score | Exception]] | None = None

    def join(self) -> None:
        """Add the current task to the group."""
        task = _current_task()
        _groups[task] = self
        self._tasks.append(task)
        task.add_done_callback(self._leave)

    async def score(self, reward: Reward, trajectory: Trajectory, verdict: float | None) -> Score:
        """Score the current task's trajectory; each task of the group calls this once.

        Raises:
            UnscoredError: see `Reward.score`.
            ConfigError: see `Reward.score`.
        """
        task = _current_task()
        self._waiting[task] = trajectory, verdict
        self._go_on()
        await self._complete.wait()
        if self._scoring is None:
            self._scoring = asyncio.create_task(self._score_all(reward))
        result = (await asyncio.shield(self._scoring))[task]
        if isinstance(result, Exception):
            raise result
        return result

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """Remove a finished task; after the last one, drop all tasks and trajectories: they keep each other alive."""
        del _groups[task]
        self._go_on()
        if len(self._tasks) == self.number and all(each.done() for each in self._tasks):
            self._tasks, self._waiting, self._scoring = [], {}, None

    def _go_on(self) -> None:
        if len(self._tasks) == self.number and all(task.done() or task in self._waiting for task in self._tasks):
            self._complete.set()

    async def _score_all(self, reward: Reward) -> dict[asyncio.Task[Any], Score | Exception]:
        tasks = [task for task in self._waiting if not task.done()]  # skips tasks that were canceled
        trajectories, verdicts = zip(*(self._waiting[task] for task in tasks), strict=True)
        try:
            results = await reward.score_group(trajectories, verdicts=verdicts)
        except Exception as error:  # noqa: BLE001 - `score` raises the error in every waiting task
            results = [error] * len(tasks)
        return dict(zip(tasks, results, strict=True))


_groups: dict[asyncio.Task[Any], Group] = {}
"""The group of each running task."""


def current() -> Group | None:
    """Return the group of the current task, or None if the task has no group."""
    return _groups.get(_current_task())


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
