"""The reward service under 500 concurrent requests: seconds of a request, and requests a second.

The service is a process of its own; the client shares the machine with it. A request carries a whole trajectory of four
turns, and the rules are the built-in ones, so that what is measured is the service.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent_rl.rewards.components.reward_api import RewardApi, RewardApiConfig
from agent_rl.trajectory import Message, StopReason, ToolCall, ToolResult, Trajectory, Turn
from tests.rewards.service.process import Service

pytestmark = pytest.mark.benchmark

AT_ONCE, EACH, BATCH = 500, 10, 100


def trajectory() -> Trajectory:
    calls = [ToolCall("calculator", {"expression": f"{number}*7"}, str(number)) for number in range(3)]
    turns = [
        Turn("Thought: I compute. " * 8, 40, [call], [ToolResult(call.id, call.name, "42")], observation="42")
        for call in calls
    ]
    question = Message("user", "A farmer has 7 fields with 42 rows each. How many rows are there? " * 4)
    return Trajectory(
        prompt=[question],
        stop_reason=StopReason.ANSWERED,
        turns=[*turns, Turn("Final Answer: 294")],
        answer="294",
        ground_truth="294",
        data_source="openai/gsm8k",
    )


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms"


async def connection(port: int, body: bytes) -> list[float]:
    """One client that asks again as soon as it is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    seconds = []
    for _ in range(EACH):
        began = time.perf_counter()
        writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        assert json.loads(await reader.readexactly(length))["score"] == 1
        seconds.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()
    return seconds


async def timed(ask: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began


def test_requests_at_one_time(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("rules: {}\n")
    one = {"trajectory": trajectory().to_dict()}
    body, batch = json.dumps(one).encode(), json.dumps({"items": [one] * BATCH}).encode()

    async def storm(port: int) -> list[float]:
        found = await asyncio.gather(*(connection(port, body) for _ in range(AT_ONCE)))
        return [each for seconds in found for each in seconds]

    async def through_the_client(url: str) -> list[float]:
        api = RewardApi("api", RewardApiConfig(url=url, max_concurrent=AT_ONCE))
        return await asyncio.gather(*(timed(lambda: api.measure(trajectory())) for _ in range(AT_ONCE)))

    async def alone(port: int) -> list[float]:
        return await connection(port, body)

    async def batches(url: str) -> None:
        remote_api = RewardApi("api", RewardApiConfig(url=url))
        response = await remote_api._remote.request("POST", url, content=batch)
        assert [each["score"] for each in response.json()["items"]] == [1] * BATCH

    with Service(tmp_path / "service.yaml") as service:
        url = f"{service.url}/get_reward"
        single = asyncio.run(alone(service.port))
        began = time.perf_counter()
        seconds = asyncio.run(storm(service.port))
        stormed = time.perf_counter()
        client = asyncio.run(through_the_client(url))
        asked = time.perf_counter()
        asyncio.run(batches(url))
        batched = time.perf_counter()
    print(
        f"\nalone: {spread(single)}\n"
        f"{AT_ONCE} at one time, {EACH} each: {spread(seconds)}, {len(seconds) / (stormed - began):.0f} requests/s\n"
        f"{AT_ONCE} through RewardApi at once: {spread(client)}, {AT_ONCE / (asked - stormed):.0f} trajectories/s\n"
        f"a batch of {BATCH}: {1000 * (batched - asked):.0f} ms, {BATCH / (batched - asked):.0f} trajectories/s"
    )
