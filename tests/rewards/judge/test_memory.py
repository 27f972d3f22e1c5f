"""A question is asked once; of equal ones at the same time, too."""

import asyncio
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.judge.memory import VerdictMemory, memory_key


def test_keys() -> None:
    assert memory_key({"a": 1, "b": [2]}, 3) == memory_key({"b": [2], "a": 1}, 3)
    assert memory_key("a", 1) != memory_key("a", 2)


async def ask(memory: VerdictMemory, key: str, asked: list[str], problem: Exception | None = None) -> str | None:
    async with memory.turn(key):
        kept = await memory.get(key)
        if kept is not None:
            return kept
        asked.append(key)
        await asyncio.sleep(0.01)
        if problem is not None:
            raise problem
        await memory.put(key, f"text of {key}")
        return "new"


def test_equal_questions_are_asked_once() -> None:
    memory, asked = VerdictMemory(None, "k"), list[str]()

    async def all_of_them() -> list[str | None]:
        return await asyncio.gather(*(ask(memory, key, asked) for key in "aabab"))

    assert asyncio.run(all_of_them()) == ["new", "text of a", "new", "text of a", "text of b"]
    assert asyncio.run(all_of_them()) == ["text of a", "text of a", "text of b", "text of a", "text of b"]
    assert asked == ["a", "b"]


def test_a_failure_is_shared_by_those_who_waited_and_by_nobody_later() -> None:
    memory, asked = VerdictMemory(None, "k"), list[str]()

    async def all_of_them(problem: Exception | None) -> list[object]:
        return await asyncio.gather(*(ask(memory, "a", asked, problem) for _ in range(3)), return_exceptions=True)

    assert [str(each) for each in asyncio.run(all_of_them(UnscoredError("down")))] == ["down"] * 3
    assert asked == ["a"]
    assert asyncio.run(all_of_them(None)) == ["new", "text of a", "text of a"]


def test_one_that_is_cancelled_leaves_its_turn() -> None:
    async def cancelled() -> str | None:
        memory, asked = VerdictMemory(None, "k"), list[str]()
        first = asyncio.create_task(ask(memory, "a", asked))
        await asyncio.sleep(0)
        second = asyncio.create_task(ask(memory, "a", asked))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(cancelled()) == "new"


def test_the_oldest_is_forgotten() -> None:
    async def run() -> list[str | None]:
        memory = VerdictMemory(None, "k", max_entries=2)
        await memory.put("a", "1")
        await memory.put("b", "2")
        await memory.get("a")
        await memory.put("c", "3")
        return [await memory.get(key) for key in "abc"]

    assert asyncio.run(run()) == ["1", None, "3"]


def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    path, asked = str(tmp_path / "verdicts.sqlite"), list[str]()
    for expected in ("new", "text of a"):
        memory = VerdictMemory(path, "k")
        assert asyncio.run(ask(memory, "a", asked)) == expected
        memory.close()
    (tmp_path / "broken").write_bytes(b"no database " * 100)
    with pytest.raises(ConfigError, match=r"^k: .*cache of verdicts"):
        VerdictMemory(str(tmp_path / "broken"), "k")
