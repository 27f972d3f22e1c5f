"""`MicroBatches`: sends concurrent requests in batches.

A batch starts as soon as fewer than `at_once` run, with all requests that wait at that moment; it never waits to fill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agent_rl.concurrency import PerLoop

__all__ = ["MicroBatches"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Lane(Generic[Item, Result]):
    """State of one event loop."""

    waiting: deque[tuple[Item, asyncio.Future[Result]]] = field(default_factory=deque)
    running: set[asyncio.Task[None]] = field(default_factory=set)


class MicroBatches(Generic[Item, Result]):
    """Calls one function for many requests; several event loops may use it.

    Args:
        run: returns a result or an exception for each item, in order; an exception that it raises goes to all items.
        most: items of a batch.
        at_once: batches that run at the same time.
    """

    def __init__(
        self, run: Callable[[list[Item]], Awaitable[Sequence[Result | BaseException]]], *, most: int, at_once: int
    ) -> None:
        self._run = run
        self._most = most
        self._at_once = at_once
        self._lanes: PerLoop[_Lane[Item, Result]] = PerLoop(_Lane)

    async def ask(self, item: Item) -> Result:
        """The item's result.

        Raises:
            BaseException: the exception for this item.
        """
        lane = self._lanes.get()
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        lane.waiting.append((item, future))
        if len(lane.running) < self._at_once:
            task = asyncio.create_task(self._drain(lane))
            lane.running.add(task)
            task.add_done_callback(lane.running.discard)
        return await future

    async def _drain(self, lane: _Lane[Item, Result]) -> None:
        """Run batches until no call waits; the first has all calls of the current iteration of the event loop."""
        while lane.waiting:
            batch = [lane.waiting.popleft() for _ in range(min(self._most, len(lane.waiting)))]
            batch = [(item, future) for item, future in batch if not future.done()]  # without cancelled calls
            if batch:
                await self._answer(batch)

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        results: Sequence[Result | BaseException]
        try:
            results = await self._run([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised in every call that waits for this batch
            results = [error] * len(batch)
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
