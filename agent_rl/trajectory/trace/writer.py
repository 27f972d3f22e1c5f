"""`TraceWriter` writes a run's trace without ever stopping the run or delaying it for long.

A thread writes the records one by one, and each episode waits for its own record, so a killed process loses at most the
records in its queue. If a write fails (for example, on a full disk) or hangs (on a network file system), the writer
reports this once, and records are lost until writing works again.
"""

from __future__ import annotations

import asyncio
import os
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
from agent_rl.work.concurrency import OneThread

PATIENCE_S = 5.0
"""Maximum number of seconds to wait for a record; after that, new records are lost until that record is written."""


class TraceWriter:
    """Writes one trace with its tokens and batches; many processes may write concurrently.

    Args:
        path: the trace.
        part_bytes: size at which a file continues in another part; if None, a file has one part.
        image_bytes: maximum size of all images; None means no limit.
    """

    def __init__(
        self, path: str | os.PathLike[str], part_bytes: int | None = None, image_bytes: int | None = None
    ) -> None:
        self.path = Path(path)
        self.lost = 0
        """Number of records that were not written."""
        self._part_bytes, self._image_bytes = part_bytes, image_bytes
        self._thread = OneThread("agent_rl-trace")
        self._overdue: Future[Exception | None] | None = None
        self._failing = False
        self._judging = threading.Lock()

    @classmethod
    @cache
    def shared(cls, path: str, part_bytes: int, image_bytes: int) -> TraceWriter:
        """Return a trace's writer, which is shared within this process."""
        return cls(path, part_bytes, image_bytes)

    async def trajectory(self, trajectory: Trajectory) -> None:
        """Write a trajectory, and its tokens if `info["tokens"]` contains them."""
        sizes = {"part_bytes": self._part_bytes, "image_bytes": self._image_bytes}
        await self._write(lambda: append(self.path, trajectory, **sizes))

    async def images(self, trajectory: Trajectory) -> Trajectory:
        """Write the images and return the trajectory with file names instead; if writing fails, return it unchanged."""
        results: list[Trajectory] = []
        if has_images(trajectory):
            store = partial(store_images, self.path, trajectory, most_bytes=self._image_bytes)
            await self._write(lambda: results.append(store()))
        return results[0] if results else trajectory

    def tokens(self, id: str, tokens: Tokens) -> None:
        """Queue the tokens of a trajectory without waiting; this process writes them before any later record."""
        if future := self._start(lambda: append_tokens(self.path, id, tokens, part_bytes=self._part_bytes)):
            future.add_done_callback(self._judge)

    def batch(self, make: Callable[[], TrainedBatch]) -> None:
        """Write the batch that `make` returns."""
        if future := self._start(lambda: append_batch(self.path, make(), part_bytes=self._part_bytes)):
            wait((future,), timeout=PATIENCE_S)
            self._judge(future)

    async def _write(self, write: Callable[[], None]) -> None:
        """Queue a write, and wait for it up to `PATIENCE_S` seconds."""
        if future := self._start(write):
            await asyncio.wait((asyncio.wrap_future(future),), timeout=PATIENCE_S)
            self._judge(future)

    def _start(self, write: Callable[[], None]) -> Future[Exception | None] | None:
        """Queue a write for the thread; while an earlier record is overdue, drop the new record and return None."""
        if self._overdue is not None and not self._overdue.done():
            self.lost += 1
            return None
        return self._thread.submit(_failure, write)

    def _judge(self, future: Future[Exception | None]) -> None:
        """Report the first failure, and the first success after a failure."""
        failure: Exception | str | None
        with self._judging:
            if future.done():
                failure = future.result()
                self.lost += failure is not None
            else:
                failure, self._overdue = f"no answer for {PATIENCE_S:g} s", future
            if failure and not self._failing:
                problem = f"the trace {self.path} cannot be written ({failure})"
                print(f"agent_rl: {problem}. New records are lost, and training continues", flush=True)
            elif self._failing and not failure:
                text = f"the trace {self.path} can be written again; {self.lost} records were lost"
                print(f"agent_rl: {text}", flush=True)
            self._failing = failure is not None


def _failure(write: Callable[[], None]) -> Exception | None:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - the run continues after any failure, and `_judge` reports it
        return error
    return None
