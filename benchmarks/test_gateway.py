"""CPU of the gateway for a request, beside a plain proxy on the same HTTP stack, and the memory of a session.

256 sessions talk at once, each 8 turns and about 2,000 tokens; the clients, and the proxy's upstream, are other
processes. The engine answers at once, so that what is measured is the gateway: HTTP, reading, matching, tokens.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_rl.agents.policies.chat_template import template_of
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import Sampled
from agent_rl.agents.sessions.server import Gateway, PortServer
from agent_rl.agents.sessions.session import Session
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.trajectory import StopReason, Trajectory
from agent_rl.verl_adapter.token_builder import TemplateBuilder
from tests.support.bench.sessions import LAST, TURN, TURNS

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SESSIONS, TOKENS = 256, 2_000
MAX_MS, MAX_KIB = 3.0, 350
PEER = [sys.executable, "-m", "tests.support.bench.sessions"]


class Engine:
    """Answers at once."""

    def __init__(self, tokenizer: Any) -> None:
        texts = [*(TURN % number for number in range(TURNS - 1)), LAST]
        self.turns = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in texts]
        self.played: dict[str, int] = {}

    async def generate(self, request_id: str, **_: Any) -> Sampled:
        number = self.played[request_id] = self.played.get(request_id, -1) + 1
        ids = list(self.turns[number])
        return Sampled(ids, [-1.0] * len(ids), "stop")


async def talk(url: str, keys: list[str]) -> float:
    """Let all sessions talk; return this process's CPU in milliseconds for a request."""
    started = time.process_time()
    client = await asyncio.create_subprocess_exec(*PEER, "talk", url, *keys)
    assert await client.wait() == 0
    return 1e3 * (time.process_time() - started) / (len(keys) * TURNS)


def resident() -> int:
    """KiB of this process in memory."""
    gc.collect()
    status = Path("/proc/self/status").read_text().split("VmRSS:")[1]
    return int(status.split()[0])


async def through_the_gateway(tokenizer: Any) -> tuple[float, float, float]:
    """Return milliseconds of CPU for a request, KiB of memory for a session, and tokens of a session."""
    gateway, engine, params = Gateway(), Engine(tokenizer), {"temperature": 1.0, "logprobs": True}
    gateway.start()
    before, sessions, policies = resident(), [], []
    for _ in range(SESSIONS):
        format = ToolCallFormat()
        policy = TokenPolicy(
            engine, TemplateBuilder(template_of(tokenizer, {})), tokenizer, params, format=format,
            prompt_length=4096, response_length=8192, engine_stops=False,
        )  # fmt: skip
        session = Session(policy, format, Trajectory([], StopReason.ERROR))
        gateway.sessions[session.id] = session
        sessions.append(session)
        policies.append(policy)
    cpu = await talk(f"http://127.0.0.1:{gateway.port}", list(gateway.sessions))
    memory = (resident() - before) / SESSIONS
    for session in sessions:
        await session.close()
        assert session.trajectory.info["gateway"] == {"requests": TURNS, "conversations": 1}
    await gateway.stop()
    return cpu, memory, sum(len(policy.ids) for policy in policies) / SESSIONS


async def through_a_proxy() -> float:
    """Return milliseconds of CPU for a request that only passes through."""
    upstream = await asyncio.create_subprocess_exec(*PEER, "answer", stdout=asyncio.subprocess.PIPE)
    assert upstream.stdout is not None
    port = int(await upstream.stdout.readline())
    limits = httpx.Limits(max_connections=SESSIONS)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=600) as client:

        async def forward(request: Request) -> Response:
            headers = {name: request.headers[name] for name in ("authorization", "content-type")}
            answer = await client.post(request.url.path, content=await request.body(), headers=headers)
            return Response(answer.content, answer.status_code, media_type="application/json")

        app = Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])])
        server = PortServer(app)
        server.start()
        cpu = await talk(f"http://127.0.0.1:{server.port}", [str(number) for number in range(SESSIONS)])
        await server.stop()
    upstream.kill()
    await upstream.wait()
    return cpu


def test_a_request_costs_at_most_three_milliseconds(tokenizer: Any) -> None:
    cpu, memory, tokens = asyncio.run(through_the_gateway(tokenizer))
    proxy = asyncio.run(through_a_proxy())
    print(f"\n{SESSIONS} sessions of {TURNS} turns and {tokens:.0f} tokens: {cpu:.2f} ms of CPU for a request,", end="")
    print(f" a plain proxy {proxy:.2f} ms; {memory:.0f} KiB of memory for a session")
    assert 0.8 * TOKENS <= tokens <= 1.3 * TOKENS
    assert cpu <= MAX_MS
    assert memory <= MAX_KIB
