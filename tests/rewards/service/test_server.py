"""The process: many at once, and how it ends."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import uvicorn

from agent_rl.errors import ConfigError
from agent_rl.rewards.service import server
from agent_rl.rewards.service.server import serve
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.settings import RewardSettings
from tests.rewards.service.process import Service
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

REQUESTS = 500


async def test_500_requests_at_one_time_are_all_answered_rightly(service: Service) -> None:
    """Each on a connection of its own, and all of them open before the first is answered."""

    async def ask(number: int) -> float:
        body = b'{"solution_str": "%d", "ground_truth": "%d"}' % (number, number - number % 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        head = f"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
        await ready.wait()
        writer.write(body)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        status, _, rest = answer.partition(b"\r\n")
        assert status == b"HTTP/1.1 200 OK"
        return float(httpx.Response(200, content=rest.partition(b"\r\n\r\n")[2]).json()["score"])

    ready = asyncio.Event()
    tasks = [asyncio.create_task(ask(number)) for number in range(REQUESTS)]
    await asyncio.sleep(1)
    ready.set()
    assert await asyncio.gather(*tasks) == [1.0, 0.0] * (REQUESTS // 2)


def slow_request(service: Service, pool: ThreadPoolExecutor, seconds: int) -> Future[httpx.Response]:
    """One that is open already."""
    body = {"solution_str": f"sleep {seconds}"}
    asked = pool.submit(httpx.post, f"{service.url}/get_reward", json=body, timeout=60)
    line = 'agent_rl_reward_requests_in_flight{endpoint="/get_reward"} 1.0'
    wait_until(lambda: line in httpx.get(f"{service.url}/metrics").text, 60)
    return asked


def test_open_requests_are_answered_before_the_service_ends(service_yaml: Path) -> None:
    with Service(service_yaml) as service, ThreadPoolExecutor() as pool:
        asked = slow_request(service, pool, 2)
        assert service.end(signal.SIGTERM) == -signal.SIGTERM
        assert asked.result().json()["score"] == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(service.url)


def test_a_rule_that_never_ends_does_not_keep_it(service_yaml: Path) -> None:
    with Service(service_yaml, "shutdown_s=1") as service, ThreadPoolExecutor() as pool:
        asked = slow_request(service, pool, 600)
        service.end(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            asked.result()


@contextlib.asynccontextmanager
async def serving(settings: ServiceSettings) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """A service in this process, with its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = server._server(settings)
        task = asyncio.create_task(running.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1], running
        finally:
            running.should_exit = True
            await task


async def test_slow_headers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the start of a connection, nor of a later request on it; a slow answer is another matter."""
    monkeypatch.setattr(server, "HEADERS_S", 0.3)
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

    async def ask(port: int, *parts: bytes) -> bytes:
        """What comes back until the connection is closed, with a header line every 50 ms."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.1)
        reading = asyncio.create_task(reader.read())
        while not reading.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"X-Slow: 1\r\n" if parts else b"")
            await asyncio.wait((reading,), timeout=0.05)
        writer.close()
        return b"" if reading.exception() else reading.result()

    start = b"GET /health HTTP/1.1\r\n"
    async with serving(ServiceSettings(rules=RewardSettings())) as (port, _):
        held = [ask(port), ask(port, start), ask(port, request, start)]
        silent, slow, later = await asyncio.wait_for(asyncio.gather(*held), 10)
    assert (silent, slow) == (b"", b"")
    assert later.startswith(b"HTTP/1.1 200 OK")


async def test_connections_without_a_request_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit those that have waited longest are closed; `HEADERS_S` does not end within this test."""
    monkeypatch.setattr(server, "most_connections", lambda: 8)

    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with serving(ServiceSettings(rules=RewardSettings())) as (port, running):
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                for _ in range(3):
                    for _ in range(8):
                        held.append(await asyncio.open_connection("127.0.0.1", port))
                        held[-1][1].write(b"GET /health HTTP/1.1\r\n")
                    body = {"solution_str": "4", "ground_truth": "4"}
                    assert (await http.get("/health")).status_code == 200
                    assert (await http.post("/get_reward", json=body)).status_code == 200
                assert len(running.server_state.connections) == 8
                assert [reader.at_eof() for reader, _ in held] == [True] * 17 + [False] * 7
        finally:
            for _, writer in held:
                writer.close()
    assert not server._Protocol._waiting


async def test_an_answer_may_take_longer_than_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "HEADERS_S", 0.2)
    rules = tmp_path / "rules.py"
    rules.write_text("import time\ndef compute_score(*arguments):\n    time.sleep(0.6)\n    return 1.0\n")
    async with serving(ServiceSettings(rules_file=str(rules))) as (port, _), httpx.AsyncClient() as http:
        url = f"http://127.0.0.1:{port}/get_reward"
        assert [(await http.post(url, json={"solution_str": "4"})).json()["score"] for _ in range(2)] == [1.0, 1.0]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port: the service cannot listen on 127.0.0.1:{port}"):
            serve(ServiceSettings(port=port, rules=RewardSettings()), print)
