"""Who may come in, and how much: the whole application behind the gate, without a socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from agent_rl.rewards.service import gate
from agent_rl.rewards.service.app import create_app
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.settings import RewardSettings

RIGHT = {"solution_str": "#### 4", "ground_truth": "4"}


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


def make(**settings: Any) -> FastAPI:
    return create_app(ServiceSettings(rules=RewardSettings(), **settings))


def post(app: FastAPI, path: str = "/get_reward", method: str = "POST", **arguments: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client(app) as http:
            return await http.request(method, path, **arguments)

    return asyncio.run(ask())


def get(app: FastAPI, path: str, **headers: bytes) -> httpx.Response:
    return post(app, path, "GET", headers=headers)


@pytest.mark.parametrize("header", ["", "Bearer wrong", "s3cret", "Basic s3cret", "Bearer s3cret2", "Bearer \u00e9"])
def test_without_the_token_a_request_is_refused(header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    app = make(token_env="MY_TOKEN")
    headers = {"authorization": header.encode()}
    assert post(app, json=RIGHT, headers=headers).status_code == 401
    assert get(app, "/metrics", authorization=header.encode()).status_code == 401
    assert get(app, "/health").status_code == 200


def test_a_request_with_the_token_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    app = make(token_env="MY_TOKEN")
    assert post(app, json=RIGHT, headers={"authorization": "Bearer s3cret"}).json()["score"] == 1
    counts = get(app, "/metrics", authorization=b"Bearer s3cret").text
    assert 'agent_rl_reward_requests_total{endpoint="/get_reward",status="200"} 1.0' in counts


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 100


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() -> None:
    app = make(max_bytes=1000)
    headers = {"content-type": "application/json"}
    assert post(app, content=b" " * 1001, headers=headers).status_code == 413
    assert post(app, content=chunks(11), headers=headers).status_code == 413
    assert post(app, content=chunks(9), headers=headers).status_code == 422  # read, and no JSON


def test_what_is_no_json_is_refused() -> None:
    response = post(make(), data={"solution_str": "4"})
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "READ_S", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    assert post(make(), content=never(), headers={"content-type": "application/json"}).status_code == 408


@pytest.mark.parametrize("path", ["/health", "/metrics", "/openapi.json"])
async def test_where_no_body_belongs_none_is_waited_for_or_read(path: str) -> None:
    read = 0

    async def without_end() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b" " * 100
            await asyncio.sleep(0 if read < 1000 else 60)

    async with client(make(max_bytes=1000)) as http:
        large = http.get(path, headers={"content-length": "1000000"})
        result = [await large, await asyncio.wait_for(http.request("GET", path, content=without_end()), 5)]
    assert [response.status_code for response in result] == [200, 200]
    assert read <= 1


async def test_more_requests_than_may_be_open_are_sent_away_for_a_while() -> None:
    app = make(max_requests=2)

    gone_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"solution_str": "#### 4", '
        await gone_on.wait()
        yield b'"ground_truth": "4"}'

    headers = {"content-type": "application/json"}
    async with client(app) as http:
        held = [asyncio.create_task(http.post("/get_reward", content=slow(), headers=headers)) for _ in range(2)]
        await asyncio.sleep(0.05)
        refused = await http.post("/get_reward", json=RIGHT)
        assert (await http.get("/health")).status_code == 200
        gone_on.set()
        others = [*await asyncio.gather(*held), await http.post("/get_reward", json=RIGHT)]
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert [each.json()["score"] for each in others] == [1, 1, 1]


def lines(text: str) -> dict[str, float]:
    found = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("agent_rl_reward_"): float(value) for name, value in found}


def test_a_request_is_counted_by_its_status() -> None:
    app = make()
    for body in (RIGHT, {}):
        post(app, json=body)
    counts = lines(get(app, "/metrics").text)
    assert counts['requests_in_flight{endpoint="/get_reward"}'] == 0
    assert counts['requests_total{endpoint="/get_reward",status="200"}'] == 1
    assert counts['requests_total{endpoint="/get_reward",status="422"}'] == 1
    assert counts['request_seconds_count{endpoint="/get_reward"}'] == 2
