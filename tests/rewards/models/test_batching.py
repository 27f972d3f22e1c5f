import asyncio

import pytest

from agent_rl.rewards.models.batching import MicroBatches


class Doubler:
    """Notes its batches; each waits until `gate` is open."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()

    async def run(self, items: list[int]) -> list[int | BaseException]:
        self.batches.append(items)
        await self.gate.wait()
        return [ValueError(f"odd {item}") if item % 2 else 2 * item for item in items]


def test_waiting_items_are_batched_and_a_failure_reaches_only_its_item() -> None:
    async def go() -> None:
        doubler = Doubler()
        batches = MicroBatches(doubler.run, most=3, at_once=1)
        first = [asyncio.create_task(batches.ask(item)) for item in (0, 2)]
        await asyncio.sleep(0.01)
        later = [asyncio.create_task(batches.ask(item)) for item in (4, 5, 6, 8)]
        await asyncio.sleep(0.01)
        assert doubler.batches == [[0, 2]]
        doubler.gate.set()
        results = await asyncio.gather(*first, *later, return_exceptions=True)
        assert doubler.batches == [[0, 2], [4, 5, 6], [8]]
        assert [results[index] for index in (0, 1, 2, 4, 5)] == [0, 4, 8, 12, 16]
        assert str(results[3]) == "odd 5"

    asyncio.run(go())


def test_several_batches_run_at_once() -> None:
    async def go() -> None:
        doubler = Doubler()
        batches = MicroBatches(doubler.run, most=8, at_once=2)
        tasks = []
        for item in (0, 2, 4):
            tasks.append(asyncio.create_task(batches.ask(item)))
            await asyncio.sleep(0.01)
        assert doubler.batches == [[0], [2]]
        doubler.gate.set()
        assert await asyncio.gather(*tasks) == [0, 4, 8]

    asyncio.run(go())


def test_a_cancelled_item_is_not_sent() -> None:
    async def go() -> None:
        doubler = Doubler()
        batches = MicroBatches(doubler.run, most=8, at_once=1)
        first = asyncio.create_task(batches.ask(0))
        await asyncio.sleep(0.01)
        gone, stays = (asyncio.create_task(batches.ask(item)) for item in (2, 4))
        await asyncio.sleep(0.01)
        gone.cancel()
        doubler.gate.set()
        assert await asyncio.gather(first, stays) == [0, 8]
        assert doubler.batches == [[0], [4]]
        assert (await asyncio.gather(gone, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    asyncio.run(go())


def test_what_the_function_raises_is_for_all() -> None:
    async def fail(items: list[int]) -> list[int]:
        raise RuntimeError(f"no {items}")

    async def go() -> None:
        batches = MicroBatches(fail, most=8, at_once=1)
        results = await asyncio.gather(batches.ask(1), batches.ask(2), return_exceptions=True)
        assert [str(result) for result in results] == ["no [1, 2]"] * 2
        with pytest.raises(RuntimeError, match=r"no \[3\]"):
            await batches.ask(3)

    asyncio.run(go())


def test_each_event_loop_has_its_own() -> None:
    async def twice(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    batches = MicroBatches(twice, most=8, at_once=1)
    assert [asyncio.run(batches.ask(item)) for item in (1, 2)] == [2, 4]
