"""vLLM's protocol, as its documentation of the completions endpoint describes it."""

import asyncio
import json

import pytest

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.source import open_client
from agent_rl.agents.policies.tokens import ChatTokenizer, Sampled, VLLMTokens
from agent_rl.errors import EngineError
from tests.support.http_faults import FaultyServer, answer

pytestmark = pytest.mark.usefixtures("quick_delays")

FINE = {
    "choices": [
        {"text": "ab", "token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.1, -0.2]}, "finish_reason": "length"}
    ]
}
MODELS = {"data": [{"id": "m"}]}


def ask(server, params):
    async def one():
        client = open_client(server.url, "m", timeout_s=5)
        async with VLLMTokens(client, ChatTokenizer(None, None), Sampling()) as source:
            await source.check()
            return await source.sample([1, 2, 3], params)

    return asyncio.run(one())


def test_token_ids_are_sent_and_received():
    params = {"temperature": 0.0, "max_new_tokens": 4, "seed": 9, "stop": ["x"], "logprobs": True}
    with FaultyServer(answer(200, MODELS), default=answer(200, FINE)) as server:
        assert ask(server, params) == Sampled([5, 6], [-0.1, -0.2], "length")
    assert server.requests[1].path == "/v1/completions"
    assert json.loads(server.requests[1].body) == {
        "model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "return_token_ids": True, "logprobs": 0,
        "temperature": 0.0, "seed": 9, "stop": ["x"],
    }  # fmt: skip


def test_a_server_that_gives_text_only_is_found_out():
    text_only = {"choices": [{"text": "ab", "finish_reason": "stop"}]}
    with FaultyServer(answer(200, MODELS), default=answer(200, text_only)) as server:
        with pytest.raises(EngineError, match=r"no token ids: is this vLLM 0\.10\.2"):
            ask(server, {"max_new_tokens": 4})
