"""Sessions of a gateway over a scripted engine."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest


@pytest.fixture
def serve(tokenizer: Any, builder: Any) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Opens a session of an engine with these turns; gives the address and the session, whose id is the key."""
    from agent_rl.agents.policies.token_policy import TokenPolicy
    from agent_rl.agents.sessions.server import Gateway
    from agent_rl.agents.sessions.session import Session
    from agent_rl.agents.tool_call import ToolCallFormat
    from agent_rl.trajectory import StopReason, Trajectory
    from tests.agents.server import Server

    @asynccontextmanager
    async def open_session(
        *turns: Any,
        prompt_length: int = 512,
        response_length: int = 512,
        sampling: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
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
            yield f"http://127.0.0.1:{gateway.port}", session
        finally:
            await session.close()
            await gateway.stop()

    return open_session


@pytest.fixture
def play(serve: Callable[..., Any]) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Opens a session with a client of OpenAI: `async with play(*turns) as (openai, session)`."""
    from openai import AsyncOpenAI

    @asynccontextmanager
    async def open_client(*turns: Any, **options: Any) -> AsyncIterator[Any]:
        async with serve(*turns, **options) as (url, session):
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key=session.id) as openai:
                yield openai, session

    return open_client
