"""The process: many at once, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.app import serve
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.settings import RewardSettings
from tests.rewards.service.process import Service

pytestmark = pytest.mark.slow

REQUESTS = 500


def test_500_requests_at_one_time_are_all_answered_rightly(service: Service) -> None:
    """Each on a connection of its own."""

    async def ask_all() -> list[float]:
        limits = httpx.Limits(max_connections=REQUESTS, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=service.url, limits=limits, timeout=60) as http:
            bodies = [{"solution_str": str(n), "ground_truth": str(n - n % 2)} for n in range(REQUESTS)]
            answers = await asyncio.gather(*(http.post("/get_reward", json=body) for body in bodies))
        return [answer.json()["score"] for answer in answers]

    assert asyncio.run(ask_all()) == [1.0, 0.0] * (REQUESTS // 2)


def test_open_requests_are_answered_before_the_service_ends(service_yaml: Path) -> None:
    with Service(service_yaml) as service:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{service.url}/get_reward", json={"solution_str": "sleep 2"}, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until_open(service, 1)
        assert service.end(signal.SIGTERM) == -signal.SIGTERM
        asking.join()
        assert answers[0].json()["score"] == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(service.url)


def test_a_rule_that_never_ends_does_not_keep_it(service_yaml: Path) -> None:
    with Service(service_yaml, "shutdown_s=1") as service:

        def ask() -> None:
            with pytest.raises(httpx.TransportError):
                httpx.post(f"{service.url}/get_reward", json={"solution_str": "sleep 600"}, timeout=60)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until_open(service, 1)
        service.end(signal.SIGTERM)
        asking.join()


def wait_until_open(service: Service, count: int) -> None:
    line = f'agent_rl_reward_requests_in_flight{{endpoint="/get_reward"}} {count:.1f}'
    while line not in httpx.get(f"{service.url}/metrics").text:
        time.sleep(0.05)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port: 127.0.0.1:{port} cannot be listened on"):
            serve(ServiceSettings(port=port, rules=RewardSettings()), print)
