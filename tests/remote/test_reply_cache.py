"""Equal requests are sent once, also those at the same time."""

import asyncio
import multiprocessing
from pathlib import Path

from agent_rl.errors import UnscoredError
from agent_rl.remote.disk_cache import DiskCache
from agent_rl.remote.reply_cache import ReplyCache, reply_key


def test_keys_do_not_depend_on_the_order_of_fields() -> None:
    assert reply_key({"a": 1, "b": [2]}, 3) == reply_key({"b": [2], "a": 1}, 3)
    assert reply_key("a", 1) != reply_key("a", 2)


async def ask(cache: ReplyCache, key: str, asked: list[str], problem: Exception | None = None) -> str:
    async def make() -> str:
        asked.append(key)
        await asyncio.sleep(0.01)
        if problem is not None:
            raise problem
        return f"text of {key}"

    text, kept = await cache.get(key, make)
    return text if kept else "new"


def test_equal_requests_are_sent_once() -> None:
    cache, asked = ReplyCache(), list[str]()

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(ask(cache, key, asked) for key in "aabab"))

    assert asyncio.run(all_of_them()) == ["new", "text of a", "new", "text of a", "text of b"]
    assert asyncio.run(all_of_them()) == ["text of a", "text of a", "text of b", "text of a", "text of b"]
    assert asked == ["a", "b"]


def test_a_failure_is_shared_with_calls_that_waited_and_not_kept() -> None:
    cache, asked = ReplyCache(), list[str]()

    async def all_of_them(problem: Exception | None) -> list[object]:
        return await asyncio.gather(*(ask(cache, "a", asked, problem) for _ in range(3)), return_exceptions=True)

    assert [str(each) for each in asyncio.run(all_of_them(UnscoredError("down")))] == ["down"] * 3
    assert asked == ["a"]
    assert asyncio.run(all_of_them(None)) == ["new", "text of a", "text of a"]


def test_when_a_call_is_cancelled_the_next_one_makes_the_text() -> None:
    async def cancelled() -> str:
        cache, asked = ReplyCache(), list[str]()
        first = asyncio.create_task(ask(cache, "a", asked))
        await asyncio.sleep(0)
        second = asyncio.create_task(ask(cache, "a", asked))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(cancelled()) == "new"


def test_the_least_recently_used_is_dropped() -> None:
    async def run() -> list[str]:
        cache, asked = ReplyCache(max_entries=2), list[str]()
        for key in "abac":
            await ask(cache, key, asked)
        return [await ask(cache, key, asked) for key in "acb"]

    assert asyncio.run(run()) == ["text of a", "text of c", "new"]


def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    path, asked = str(tmp_path / "replies.sqlite"), list[str]()
    for expected in ("new", "text of a"):
        cache = ReplyCache(DiskCache(path, key="k", kind="replies"))
        assert asyncio.run(ask(cache, "a", asked)) == expected
        cache.close()


def replies_of_one_process(path: str) -> None:
    cache = ReplyCache(DiskCache(path, key="k", kind="replies"))

    async def run() -> None:
        for number in range(200):
            assert await cache.get(str(number), lambda: asyncio.sleep(0, "x" * 1000)) in {
                ("x" * 1000, kept) for kept in (True, False)
            }

    asyncio.run(run())
    cache.close()


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "replies.sqlite")
    processes = [
        multiprocessing.get_context("spawn").Process(target=replies_of_one_process, args=(path,)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert asyncio.run(ask(ReplyCache(DiskCache(path, key="k", kind="replies")), "7", [])) == "x" * 1000
