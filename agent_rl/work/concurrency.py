"""Tools that asyncio lacks: limits on time and concurrency, work in daemon threads, one value per event loop.

`asyncio.wait_for` waits for work that ignores its cancellation, `asyncio.gather` leaves work running when one item
raises an exception, and the default executor's threads prevent a process from exiting. A thread that this module
abandons is a daemon, which runs until its function returns or the process exits.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent import futures
from typing import Any, Generic, TypeVar

T = TypeVar("T")

CANCEL_GRACE_S = 1.0
"""Number of seconds that canceled work is given to clean up before it is abandoned."""

FIRST_PAUSE_S = 0.1
"""Average number of seconds before the first repeat of failed work."""

logger = logging.getLogger(__name__)


class OutOfTime(Exception):
    """A time limit that this module enforces was reached; a plain TimeoutError, by contrast, comes from a tool."""


class PerLoop(Generic[T]):
    """One value per event loop, for objects that asyncio binds to a loop (semaphores, connections, tasks).

    Args:
        make: function that makes a loop's value when it is first used; the values of closed loops are dropped.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the running loop's value."""
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            for known in list(self._values):
                if known.is_closed():  # loops of other threads may still run
                    self._values.pop(known, None)
            self._values[loop] = self._make()
        return self._values[loop]


_gates: PerLoop[dict[Hashable, asyncio.Semaphore]] = PerLoop(dict)


def gate(key: Hashable, limit: int) -> asyncio.Semaphore:
    """Return the semaphore that all callers with this key and limit share in the running event loop."""
    gates = _gates.get()
    if (key, limit) not in gates:
        gates[key, limit] = asyncio.Semaphore(limit)
    return gates[key, limit]


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` for at most `limit_s` seconds.

    Unlike `asyncio.wait_for`, this function returns in time when the work ignores its cancellation, and distinguishes a
    cancellation by the work itself from a cancellation of the whole episode.

    Raises:
        OutOfTime: the limit was reached; the work has been canceled.
        RuntimeError: the work canceled itself.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.sleep(0)  # work that never waits is done after one step, and needs no timer
        if not task.done():
            await asyncio.wait((task,), timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not task.done():
        await _stop(task)
        raise OutOfTime
    if task.cancelled():
        raise RuntimeError("it was cancelled from within")
    return task.result()


async def repeated(
    work: Callable[[int], Coroutine[Any, Any, T]],
    limit_s: float,
    repeats: int,
    transient: tuple[type[Exception], ...],
) -> T:
    """Run `work(1)`, then `work(2)` and so on after transient failures, all within `limit_s` seconds.

    The pause before a repeat starts at 0.1 s, doubles each time, and varies randomly by up to half, so that callers do
    not all retry at the same moment.

    Raises:
        Exception: the last failure, if the repeats or the time are used up.
        OutOfTime: the limit was reached and nothing had failed before.
    """
    end = time.monotonic() + limit_s
    failure: Exception | None = None
    number = 1
    while True:
        try:
            return await within(end - time.monotonic(), work(number))
        except OutOfTime as error:
            raise failure or error from None
        except transient as error:
            failure = error
        pause = FIRST_PAUSE_S * 2 ** (number - 1) * random.uniform(0.5, 1.5)
        if number > repeats or time.monotonic() + pause >= end:
            raise failure
        await asyncio.sleep(pause)
        number += 1


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, or asyncio warns
    await asyncio.wait((task,), timeout=CANCEL_GRACE_S)
    if not task.done():
        logger.warning("a tool ignores its cancellation and is abandoned: %r", task)


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines like `asyncio.gather`, but cancel the remaining ones when one of them raises an exception."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def uninterrupted(work: asyncio.Future[Any]) -> None:
    """Finish `work` even if the caller is canceled in the meantime, then raise the CancelledError."""
    interruption: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            interruption = error
    if interruption is not None:
        raise interruption


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Await `function(*arguments)` in a separate daemon thread."""
    work, future = _work(function, *arguments)
    threading.Thread(target=work, name="agent_rl-tool", daemon=True).start()
    return await asyncio.wrap_future(future)


class OneThread:
    """Runs functions one after another on one daemon thread, which starts with the first function.

    Args:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Number of queued functions that have not started."""
        return self._queue.qsize()

    def submit(self, function: Callable[..., T], *arguments: Any) -> futures.Future[T]:
        """Queue `function(*arguments)` for the thread; return the future of its result."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        work, future = _work(function, *arguments)
        self._queue.put(work)
        return future

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Await `function(*arguments)` on the thread."""
        return await asyncio.wrap_future(self.submit(function, *arguments))

    def close(self, wait_s: float = 0.0) -> bool:
        """Stop the thread after the queued functions; return whether it stopped within `wait_s` seconds."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(wait_s)
        return self._thread is None or not self._thread.is_alive()

    def _loop(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


def _work(function: Callable[..., T], *arguments: Any) -> tuple[Callable[[], None], futures.Future[T]]:
    """Wrap a function so that it never raises an exception; return the wrapper and the future of the result."""
    future: futures.Future[T] = futures.Future()
    future.set_running_or_notify_cancel()  # keeps a canceled wait from canceling the function
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(function, *arguments))
        except StopIteration as error:  # asyncio's futures cannot carry this exception
            future.set_exception(RuntimeError(f"the tool raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - passed to the awaiting call, which handles it
            future.set_exception(error)

    return work, future
