"""Equal calls are made once, also those at the same time; a file keeps results for other processes and runs."""

import asyncio
import multiprocessing
import shutil
import sqlite3
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.work.store import ENTRY_BYTES, Cache, Store, reply_key


def test_keys_do_not_depend_on_the_order_of_fields() -> None:
    assert reply_key({"a": 1, "b": [2]}, 3) == reply_key({"b": [2], "a": 1}, 3)
    assert reply_key("a", 1) != reply_key("a", 2)


async def ask(cache: Cache, key: str, asked: list[str], problem: Exception | None = None) -> str:
    async def make() -> str:
        asked.append(key)
        await asyncio.sleep(0.01)
        if problem is not None:
            raise problem
        return f"text of {key}"

    text, kept = await cache.get(key, make)
    return text if kept else "new"


def test_equal_requests_are_sent_once() -> None:
    cache, asked = Cache(), list[str]()

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(ask(cache, key, asked) for key in "aabab"))

    assert asyncio.run(all_of_them()) == ["new", "text of a", "new", "text of a", "text of b"]
    assert asyncio.run(all_of_them()) == ["text of a", "text of a", "text of b", "text of a", "text of b"]
    assert asked == ["a", "b"]


def test_a_failure_is_shared_with_calls_that_waited_and_not_kept() -> None:
    cache, asked = Cache(), list[str]()

    async def all_of_them(problem: Exception | None) -> list[object]:
        return await asyncio.gather(*(ask(cache, "a", asked, problem) for _ in range(3)), return_exceptions=True)

    assert [str(each) for each in asyncio.run(all_of_them(UnscoredError("down")))] == ["down"] * 3
    assert asked == ["a"]
    assert asyncio.run(all_of_them(None)) == ["new", "text of a", "text of a"]


async def test_when_a_call_is_cancelled_the_next_one_makes_the_text() -> None:
    cache, asked = Cache(), list[str]()
    first = asyncio.create_task(ask(cache, "a", asked))
    await asyncio.sleep(0)
    second = asyncio.create_task(ask(cache, "a", asked))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second) == "new"


async def test_the_least_recently_used_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_rl.work.store.MAX_BYTES", 2 * (ENTRY_BYTES + len("text of a")))
    cache, asked = Cache(), list[str]()
    for key in "abac":
        await ask(cache, key, asked)
    assert [await ask(cache, key, asked) for key in "acb"] == ["text of a", "text of c", "new"]


def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    path, asked = str(tmp_path / "new" / "replies.jsonl"), list[str]()
    for expected in ("new", "text of a"):
        cache = Cache(path)
        assert asyncio.run(ask(cache, "a", asked)) == expected


def results_of_one_process(path: str, name: int) -> None:
    store = Store(path)
    for number in range(200):
        store.put(f"{name} {number}", "x" * 1000)
        assert store.get(f"{name} {number}") == "x" * 1000


def test_processes_append_to_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "results.jsonl")
    store = Store(path)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=results_of_one_process, args=(path, name)) for name in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert store.get("2 199") == "x" * 1000
    assert len(list(store.items())) == 600


def test_the_last_result_counts_and_a_torn_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('[1, "old"]\n[2, {"a": 1}]\n[3, "to')
    store = Store(path)
    assert store.get(1) == "old"
    store.put(1, "new")
    assert store.get(1) == "new"
    assert list(Store(path).items()) == [(1, "new"), (2, {"a": 1})]


def test_a_database_of_an_older_version_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE results (key TEXT)")
    connection.close()
    before = path.read_bytes()
    Store(path).put("a", 1)
    assert Store(path).get("a") == 1
    assert path.read_bytes() == before


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    for unusable in (path, path / "below"):
        with pytest.raises(ConfigError, match=r"^a\.b: .*cannot be used as a cache of things.*delete"):
            Cache(str(unusable), "a.b", "things")
    assert path.read_bytes() == b"PAR1"


def test_a_file_that_fails_later_costs_results_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    store = Store(folder / "results.jsonl")
    store.put("x", "y")
    shutil.rmtree(folder)
    folder.touch()
    store.put("x", "y")
    assert store.get("x") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_file_that_was_deleted_and_written_anew_gives_no_result_of_another_key(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    store = Store(path)
    for key in "abc":
        store.put(key, f"text of {key}")
    path.unlink()
    for key in "xyzw":
        Store(path).put(key, f"text of {key}")
    assert [store.get(key) for key in "abc"] == [None] * 3
    store.put("a", "new")
    assert (store.get("a"), Store(path).get("a")) == ("new", "new")
    path.unlink()
    Store(path).put("x", "newer")
    assert [store.get(key) for key in "xya"] == ["newer", None, None]
