"""What asyncio lacks: one value for each event loop, and work with a limit on its time."""

import asyncio

import pytest

from agent_rl.work.concurrency import OutOfTime, PerLoop, within


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
