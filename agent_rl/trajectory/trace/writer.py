"""`TraceWriter`: writes a run's trace, and never stops or delays the run.

A thread writes one record after the other, and a trajectory continues when its own is written: a killed process loses
at most the one that it is writing. What fails (a full disk) or does not end (a network file system that hangs) is
reported once, and the records are lost that come until writing works again.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache, partial
from pathlib import Path

from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.batches import TrainedBatch, append_batch
from agent_rl.trajectory.trace.files import append
from agent_rl.trajectory.trace.images import has_images, store_images
from agent_rl.trajectory.trace.tokens import Tokens, append_tokens

__all__ = ["TraceWriter"]


class TraceWriter:
    """Writes to one trace, its tokens and batches; safe with many processes.

    Args:
        path: the trace.
        part_bytes: size after which a file is followed by another part; None: never.
        image_bytes: most bytes of all images; None: no limit.
        patience_s: seconds that a caller waits for one record; then what follows is lost until that record is written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        part_bytes: int | None = None,
        image_bytes: int | None = None,
        patience_s: float = 5.0,
    ) -> None:
        self.path = Path(path)
        self.lost = 0
        """Records that were not written."""
        self._part_bytes, self._image_bytes = part_bytes, image_bytes
        self._patience_s = patience_s
        self._work: queue.SimpleQueue[tuple[Future[Exception | None], Callable[[], None]]] | None = None
        self._overdue: Future[Exception | None] | None = None
        self._failing = False
        self._judging = threading.Lock()

    @classmethod
    @cache
    def shared(cls, path: str, part_bytes: int, image_bytes: int) -> TraceWriter:
        """This process's writer of a trace."""
        return cls(path, part_bytes, image_bytes)

    async def trajectory(self, trajectory: Trajectory) -> None:
        """Write a trajectory, and its tokens if it has them in `info["tokens"]`."""
        sizes = {"part_bytes": self._part_bytes, "image_bytes": self._image_bytes}
        await self._written(lambda: append(self.path, trajectory, **sizes))

    async def images(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with names instead of its images, which are written; unchanged where that fails."""
        stored: list[Trajectory] = []
        if has_images(trajectory):
            store = partial(store_images, self.path, trajectory, most_bytes=self._image_bytes)
            await self._written(lambda: stored.append(store()))
        return stored[0] if stored else trajectory

    def tokens(self, id: str, tokens: Tokens) -> None:
        """Write the tokens of a trajectory, without waiting: what is written next, of the same process, comes later."""
        if future := self._start(lambda: append_tokens(self.path, id, tokens, part_bytes=self._part_bytes)):
            future.add_done_callback(self._judge)

    def batch(self, make: Callable[[], TrainedBatch]) -> None:
        """Write the batch that `make` gives."""
        if future := self._start(lambda: append_batch(self.path, make(), part_bytes=self._part_bytes)):
            wait((future,), timeout=self._patience_s)
            self._judge(future)

    async def _written(self, write: Callable[[], None]) -> None:
        if future := self._start(write):
            await asyncio.wait((asyncio.wrap_future(future),), timeout=self._patience_s)
            self._judge(future)

    def _start(self, write: Callable[[], None]) -> Future[Exception | None] | None:
        """Have it written in the thread; None: it is lost, because an earlier record is not written yet."""
        if self._overdue is not None and not self._overdue.done():
            self.lost += 1
            return None
        if self._work is None:
            self._work = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(self._work,), name="agent_rl-trace", daemon=True).start()
        future: Future[Exception | None] = Future()
        self._work.put((future, write))
        return future

    def _run(self, work: queue.SimpleQueue[tuple[Future[Exception | None], Callable[[], None]]]) -> None:
        while True:
            future, write = work.get()
            try:
                write()
                future.set_result(None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run continues: `_judge` reports it
                future.set_result(error)

    def _judge(self, future: Future[Exception | None]) -> None:
        """Report the first failure, and the end of failing."""
        failure: Exception | str | None
        with self._judging:
            if future.done():
                failure = future.result()
                self.lost += failure is not None
            else:
                failure, self._overdue = f"no answer for {self._patience_s:g} s", future
            if failure and not self._failing:
                what = f"the trace {self.path} cannot be written ({failure})"
                print(f"agent_rl: {what}: what comes now is missing in it, and training continues", flush=True)
            elif self._failing and not failure:
                print(f"agent_rl: the trace {self.path} is written again, {self.lost} records are missing", flush=True)
            self._failing = failure is not None
