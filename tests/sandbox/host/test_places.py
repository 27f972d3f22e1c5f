"""The places of a node: shared by processes, freed by their end, and kept by none."""

import asyncio
import subprocess
import sys
import tempfile
import time
from threading import Timer

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.host.places import PLACES, Places, in_a_place

HOLDER = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from agent_rl.sandbox.host.places import PLACES, Places
places = Places(PLACES)
while places.take(): pass
print("all", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Places that other processes of this machine do not share."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_all_of_a_process_are_free_again_once_it_is_killed(folder):
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "all\n"
        places = Places(PLACES)
        assert not places.take()
        holder.kill()
        holder.wait()
        assert [places.take() for _ in range(PLACES + 1)] == [True] * PLACES + [False]
        places.close()


def test_a_sandbox_with_places_of_its_own_shares_none():
    one, other = Places(1), Places(1, shared=False)
    assert [one.take(), one.take(), other.take(), other.take()] == [True, False, True, False]
    one.close()
    other.close()


@pytest.mark.parametrize("broken", ["no folder", "no locks"])
def test_where_no_file_can_be_locked_each_has_its_own(monkeypatch, folder, broken):
    if broken == "no folder":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    else:
        monkeypatch.setattr("fcntl.fcntl", lambda *_: (_ for _ in ()).throw(OSError(37, "no locks available")))
    one, other = Places(1), Places(1)
    assert [one.take(), one.take(), other.take()] == [True, False, True]
    one.close()
    other.close()


async def test_tasks_get_places_in_their_order_and_no_more_than_there_are():
    started, at_once = [], []
    places = Places(2)

    async def work(number):
        async with places:
            started.append(number)
            at_once.append(len(places._taken))
            await asyncio.sleep(0.001)

    await asyncio.gather(*(work(number) for number in range(20)))
    places.close()
    assert started == list(range(20))
    assert max(at_once) == 2


async def test_a_process_with_many_programs_does_not_keep_all_places():
    many, few = Places(2), Places(2)

    async def work():
        async with many:
            await asyncio.sleep(0.002)

    queue = [asyncio.ensure_future(work()) for _ in range(4000)]
    await asyncio.sleep(0.01)
    async with few:
        left = sum(not task.done() for task in queue)
    for task in queue:
        task.cancel()
    await asyncio.gather(*queue, return_exceptions=True)
    many.close()
    few.close()
    assert left > 0


async def test_a_place_is_given_back_after_the_sandbox_was_closed():
    places = Places(1)
    async with places:
        places.close()
    assert places.take()


def test_what_the_machine_was_too_busy_for_is_done_once_more():
    outcomes = [UnscoredError("busy"), 7, UnscoredError("busy"), UnscoredError("too busy")]

    def work():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert in_a_place(work) == 7
    with pytest.raises(UnscoredError, match="too busy"):
        in_a_place(work)
    assert not outcomes


def test_a_thread_waits_for_a_place():
    everything = Places(PLACES)
    while everything.take():
        pass
    started = time.monotonic()
    Timer(0.1, everything.close).start()
    assert in_a_place(lambda: True)
    assert time.monotonic() - started >= 0.1
