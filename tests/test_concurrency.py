"""What asyncio lacks: one value for each event loop."""

import asyncio

from agent_rl.concurrency import PerLoop


def test_each_loop_has_its_own_and_closed_ones_are_dropped() -> None:
    values: PerLoop[list[int]] = PerLoop(list)

    async def same() -> bool:
        values.get().append(1)
        return values.get() == [1] and values.get() is values.get()

    assert asyncio.run(same())
    assert asyncio.run(same())
    assert len(values._values) == 1
