"""What the checks' client reads from a stream."""

import httpx
import pytest

from agent_rl.conformance import OpenSession
from agent_rl.conformance.client import Checks, Client
from agent_rl.conformance.engine import Engine


@pytest.mark.parametrize("space", ["", " "])
async def test_events_are_read_with_and_without_a_space(space: str) -> None:
    text = f"event:{space}a\ndata:{space}{{}}\n\n: comment\n\nevent:{space}b\ndata:{space}[DONE]\n\n"
    session = OpenSession("http://gateway", "key")
    client = Client(Checks(session, Engine()), session)
    client._http = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, text=text)))
    assert await client.events() == [("a", {}), ("b", "[DONE]")]
