"""What asyncio lacks: one value for each event loop, and work with a limit on its time."""

import asyncio
import contextvars
import threading
import time

import pytest

from agent_rl.work.concurrency import OneThread, OutOfTime, PerLoop, within


def test_each_loop_has_its_own_and_closed_ones_are_dropped() -> None:
    values: PerLoop[list[int]] = PerLoop(list)

    async def same() -> bool:
        values.get().append(1)
        return values.get() == [1] and values.get() is values.get()

    assert asyncio.run(same())
    assert asyncio.run(same())
    assert len(values._values) == 1


def test_work_within_its_limit_gives_its_result_or_its_error() -> None:
    async def work(wait_s: float, fails: bool = False) -> int:
        await asyncio.sleep(wait_s)
        if fails:
            raise ValueError("mine")
        return 7

    assert [asyncio.run(within(5, work(wait_s))) for wait_s in (0, 0.01)] == [7, 7]
    with pytest.raises(ValueError, match="mine"):
        asyncio.run(within(5, work(0.01, fails=True)))
    with pytest.raises(OutOfTime):
        asyncio.run(within(0.01, work(5)))


def test_work_that_cancels_itself_is_an_error_and_no_cancellation() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled from within"):
        asyncio.run(within(5, work()))


async def test_one_thread_runs_functions_in_their_order_with_the_callers_context() -> None:
    name = contextvars.ContextVar("name", default="nobody")
    order: list[int] = []

    def work(number: int, wait_s: float = 0.0) -> tuple[int, str]:
        time.sleep(wait_s)
        order.append(number)
        return threading.get_ident(), name.get()

    thread = OneThread("mine")
    name.set("caller")
    results = await asyncio.gather(thread.run(work, 1, 0.02), thread.run(work, 2), thread.run(work, 3))
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 / 0)
    results.append(await thread.run(work, 4))
    thread.close()
    assert order == [1, 2, 3, 4]
    assert len(set(results)) == 1
    assert results[0][1] == "caller"
    assert results[0][0] != threading.get_ident()


async def test_one_thread_starts_at_the_first_function_and_ends_after_its_last() -> None:
    idle, used = OneThread("idle-thread"), OneThread("used-thread")
    thread = await used.run(threading.current_thread)
    assert (thread.name, thread.daemon) == ("used-thread", True)
    used.close()
    idle.close()
    thread.join(5)
    assert not thread.is_alive()
    assert "idle-thread" not in [each.name for each in threading.enumerate()]
