"""`Rate`: the requests of all processes of a node to one server are spaced evenly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_rl.remote import Remote, RemoteError, RemoteLimits
from agent_rl.remote.rate import Rate

PROCESS = """
import asyncio, sys, time
from agent_rl.remote.rate import Rate

async def turns(rate):
    for _ in range(8):
        await rate.turn("judge:443")
        print(time.monotonic())

asyncio.run(turns(Rate(40)))
"""


def test_processes_share_a_rate(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    times = sorted(float(time) for process in processes for time in process.communicate()[0].split())
    assert len(times) == 24
    for early, late in zip(times, times[8:], strict=False):
        assert late - early >= 6 / 40  # a busy machine may delay two turns of eight until those after them


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_servers_and_rates_do_not_wait_for_each_other(folder: Path) -> None:
    async def turns() -> None:
        slow = Rate(0.01)
        await asyncio.gather(slow.turn("judge:443"), slow.turn("judge:444"), Rate(0.02).turn("judge:443"))

    began = time.monotonic()
    asyncio.run(turns())
    assert time.monotonic() - began < 10


def test_a_cancelled_turn_leaves_the_next_one_free(folder: Path) -> None:
    async def turns() -> None:
        rate = Rate(2)
        await rate.turn("judge:443")
        waiting = [asyncio.create_task(rate.turn("judge:443")) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        began = time.monotonic()
        await rate.turn("judge:443")
        assert time.monotonic() - began < 5  # one turn is lost, not twenty

    asyncio.run(turns())


def test_a_folder_that_cannot_be_written_fails_the_request(folder: Path) -> None:
    folder.rmdir()
    remote = Remote("http://127.0.0.1:1", limits=RemoteLimits(rate_per_s=1))
    with pytest.raises(RemoteError, match="TMPDIR"):
        asyncio.run(remote.request("GET", "/"))
