"""The protocols of SGLang, whose real server runs in tests/e2e, and of vLLM as its documentation describes it."""

import asyncio
import json

import pytest

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.source import open_client
from agent_rl.agents.policies.tokens import ChatTokenizer, Sampled, SGLangTokens, VLLMTokens
from agent_rl.errors import ConfigError
from agent_rl.remote import RemoteError
from tests.support.http_faults import FaultyServer, answer

pytestmark = pytest.mark.usefixtures("quick_delays")

SGLANG = {
    "text": "ab",
    "output_ids": [5, 6],
    "meta_info": {
        "finish_reason": {"type": "stop", "matched": 6},
        "output_token_logprobs": [[-0.1, 5, None], [-0.2, 6, None]],
    },
}
VLLM = {
    "choices": [
        {"text": "ab", "token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.1, -0.2]}, "finish_reason": "length"}
    ]
}
MODELS = {"data": [{"id": "m"}]}
PARAMS = {"temperature": 0.0, "max_new_tokens": 4, "seed": 9, "logprobs": True}


def ask(server, params, kind=SGLangTokens):
    async def one():
        client = open_client(f"{server.url}/v1", "m", timeout_s=5)
        async with kind(client, ChatTokenizer(None, None), Sampling()) as source:
            await source.check()
            return await source.sample([1, 2, 3], params)

    return asyncio.run(one())


def test_token_ids_are_sent_to_sglang_and_received():
    params = dict(PARAMS)
    with FaultyServer(default=answer(200, SGLANG)) as server:
        assert ask(server, params) == Sampled([5, 6], [-0.1, -0.2], "stop")
        assert ask(server, {"temperature": 0.0}).log_probs is None
    assert [request.path for request in server.requests[:2]] == ["/get_server_info", "/generate"]
    assert json.loads(server.requests[1].body) == {
        "input_ids": [1, 2, 3],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 4, "sampling_seed": 9},
        "return_logprob": True,
    }
    assert params == PARAMS  # the caller's own are left alone


def test_token_ids_are_sent_to_vllm_and_received():
    with FaultyServer(answer(200, MODELS), default=answer(200, VLLM)) as server:
        assert ask(server, {**PARAMS, "stop": ["x"]}, VLLMTokens) == Sampled([5, 6], [-0.1, -0.2], "length")
    assert server.requests[1].path == "/v1/completions"
    assert json.loads(server.requests[1].body) == {
        "model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "return_token_ids": True, "logprobs": 0,
        "temperature": 0.0, "seed": 9, "stop": ["x"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "step", "said"),
    [
        *(
            (SGLangTokens, answer(200, body), "no tokens")
            for body in ({}, [], {"output_ids": [1]}, {"output_ids": [1], "meta_info": {"finish_reason": "x"}})
        ),
        (SGLangTokens, answer(400, {"error": "too long"}), "too long"),
        (VLLMTokens, answer(200, {"choices": [{"text": "ab"}]}), r"no token ids: is this vLLM 0\.10\.2"),
    ],
)
def test_an_answer_without_tokens_and_a_refusal_are_the_engines_fault(kind, step, said):
    with FaultyServer(answer(200, MODELS), default=step) as server, pytest.raises(RemoteError, match=said):
        ask(server, {"max_new_tokens": 4}, kind)


def test_another_server_is_found_out():
    with FaultyServer(answer(404)) as server, pytest.raises(ConfigError, match="is not an SGLang server"):
        ask(server, {})
