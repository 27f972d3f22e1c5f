"""Sessions of a gateway over a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def serve(tokenizer: Any, builder: Any) -> Callable[..., Any]:
    """Runs a coroutine function `client(url, key)` in a session of an engine with these turns; returns the session."""
    from agent_rl.agents.policies.token_policy import TokenPolicy
    from agent_rl.agents.sessions.server import Gateway
    from agent_rl.agents.sessions.session import Session
    from agent_rl.agents.tool_call import ToolCallFormat
    from agent_rl.trajectory import StopReason, Trajectory
    from tests.agents.server import Server

    def run(
        client: Callable[..., Any],
        *turns: Any,
        prompt_length: int = 512,
        response_length: int = 512,
        sampling: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        async def main() -> Session:
            format = ToolCallFormat()
            server, params = Server(tokenizer, *turns), {"temperature": 1.0, "logprobs": True, **(sampling or {})}
            limits = {"prompt_length": prompt_length, "response_length": response_length, "engine_stops": False}
            policy = TokenPolicy(server, builder, tokenizer, params, format=format, **limits)
            session = Session(policy, format, Trajectory([], StopReason.ERROR), **options)
            session.policy, session.engine = policy, server
            gateway = Gateway()
            gateway.start()
            gateway.sessions[session.id] = session
            try:
                await client(f"http://127.0.0.1:{gateway.port}", session.id)
            finally:
                await session.close()
                await gateway.stop()
            return session

        return asyncio.run(main())

    return run


@pytest.fixture
def play(serve: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a coroutine function with a client of OpenAI; see `serve`."""
    from openai import AsyncOpenAI

    def run(client: Callable[..., Any], *turns: Any, **options: Any) -> Any:
        async def main(url: str, key: str) -> None:
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as openai:
                await client(openai)

        return serve(main, *turns, **options)

    return run
