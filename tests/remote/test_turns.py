"""Two servers that are loaded one after another, and requests that need both."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_rl.remote import Remote, RemoteLimits
from agent_rl.remote import http as http_module
from agent_rl.remote import turns as module
from agent_rl.remote.turns import Turns
from tests.http_faults import FaultyServer, answer

LIMITS = RemoteLimits(timeout_s=2, total_s=2, attempts=1)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    found = Turns()
    monkeypatch.setattr(http_module, "TURNS", found)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "QUIET_S", 0.05)
    return found


async def in_turn(turns: Turns, work: asyncio.Future[Any]) -> list[str]:
    """Give turns until the work is done; the servers that had one."""
    order = []
    while not work.done():
        if counts := turns.waiting():
            order.append(max(counts, key=lambda each: counts[each]))
            await turns.take(order[-1])
        await asyncio.sleep(0.01)
    await work  # its error, if a request failed
    return order


def test_a_request_waits_for_its_server_and_what_it_leads_to_for_the_next(turns: Turns) -> None:
    """Each episode asks the critic, and with its reply the scorer: two loads, whatever the number of episodes."""
    said = answer(200, b"{}")
    with FaultyServer(default=said) as critic, FaultyServer(default=said) as scorer:
        turns.manage([critic.url, scorer.url])
        asked: list[str] = []

        async def episode(remotes: dict[str, Remote]) -> None:
            for name, remote in remotes.items():
                await remote.request("POST", "/v1/x")
                asked.append(name)

        async def all_of_them() -> list[str]:
            remotes = {"critic": Remote(critic.url, limits=LIMITS), "scorer": Remote(scorer.url, limits=LIMITS)}
            work = asyncio.gather(*(episode(remotes) for _ in range(40)))
            await asyncio.sleep(2.2)  # longer than a request may take
            assert asked == []
            return await in_turn(turns, work)

        order = asyncio.run(all_of_them())
        assert order == [critic.url, scorer.url]
        assert asked == ["critic"] * 40 + ["scorer"] * 40
    assert turns.waiting() == {}


def test_a_turn_lasts_as_long_as_its_server_is_asked(turns: Turns) -> None:
    with FaultyServer(default=answer(200, b"{}")) as server:
        turns.manage([server.url])

        async def chain() -> None:
            remote = Remote(server.url, limits=LIMITS)
            for _ in range(5):
                await remote.request("POST", "/")

        async def order() -> list[str]:
            return await in_turn(turns, asyncio.ensure_future(chain()))

        assert asyncio.run(order()) == [server.url]


def test_other_servers_and_cancelled_requests_are_not_waited_for(turns: Turns) -> None:
    with FaultyServer(default=answer(200, b"{}")) as server, FaultyServer(default=answer(200, b"{}")) as other:
        turns.manage([server.url])

        async def cancelled() -> dict[str, int]:
            await Remote(other.url, limits=LIMITS).request("POST", "/")
            task = asyncio.ensure_future(Remote(server.url, limits=LIMITS).request("POST", "/"))
            await asyncio.sleep(0.05)
            counted = turns.waiting()
            task.cancel()
            await asyncio.wait([task])
            return counted

        assert asyncio.run(cancelled()) == {server.url: 1}
        assert turns.waiting() == {}
