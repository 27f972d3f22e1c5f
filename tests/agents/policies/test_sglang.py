"""SGLang's protocol; the real server runs in tests/e2e."""

import asyncio
import json

import pytest

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.source import open_client
from agent_rl.agents.policies.tokens import ChatTokenizer, Sampled, SGLangTokens
from agent_rl.errors import ConfigError, EngineError
from tests.support.http_faults import FaultyServer, answer

pytestmark = pytest.mark.usefixtures("quick_delays")

FINE = {
    "text": "ab",
    "output_ids": [5, 6],
    "meta_info": {
        "finish_reason": {"type": "stop", "matched": 6},
        "output_token_logprobs": [[-0.1, 5, None], [-0.2, 6, None]],
    },
}


def ask(server, params, **options):
    async def one():
        client = open_client(f"{server.url}/v1", "m", timeout_s=5, **options)
        async with SGLangTokens(client, ChatTokenizer(None, None), Sampling()) as source:
            await source.check()
            return await source.sample([1, 2, 3], params)

    return asyncio.run(one())


def test_token_ids_are_sent_and_received():
    params = {"temperature": 0.0, "max_new_tokens": 4, "seed": 9, "logprobs": True}
    with FaultyServer(default=answer(200, FINE)) as server:
        assert ask(server, params) == Sampled([5, 6], [-0.1, -0.2], "stop")
        assert ask(server, {"temperature": 0.0}).log_probs is None
    assert [request.path for request in server.requests[:2]] == ["/get_server_info", "/generate"]
    assert json.loads(server.requests[1].body) == {
        "input_ids": [1, 2, 3],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 4, "sampling_seed": 9},
        "return_logprob": True,
    }
    assert params["seed"] == 9  # the caller's own are left alone


@pytest.mark.parametrize(
    "body", [{}, [], {"output_ids": [1]}, {"output_ids": [1], "meta_info": {"finish_reason": "x"}}]
)
def test_an_answer_without_tokens_and_a_refusal_are_the_engines_fault(body):
    with FaultyServer(answer(200), default=answer(200, body)) as server, pytest.raises(EngineError, match="no tokens"):
        ask(server, {})
    refusal = answer(400, {"error": "too long"})
    with FaultyServer(answer(200), refusal) as server, pytest.raises(EngineError, match="too long"):
        ask(server, {})


def test_another_server_is_found_out():
    with FaultyServer(answer(404)) as server, pytest.raises(ConfigError, match="is not an SGLang server"):
        ask(server, {})
