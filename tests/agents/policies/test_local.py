"""A real model in this process, compared with transformers called directly."""

import asyncio

import pytest

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.local import LocalModel
from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.inspection import load_chat_tokenizer

pytestmark = pytest.mark.trainer

GREEDY = {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def source(model_dir):
    return LocalModel(model_dir, load_chat_tokenizer(model_dir), Sampling(temperature=0), batch=4)


def sample(source, prompts, **params):
    async def ask():
        async with source:
            return await asyncio.gather(*(source.sample(prompt, GREEDY | params) for prompt in prompts))

    return asyncio.run(ask())


def prompts(source):
    texts = ["What is 12+30?", "Solve it, please, and say why.", "x", "def f():", "Thought: I compute."]
    return [source.tokenizer.encode(text) for text in texts]


def directly(source, ids, limit):
    import torch

    out = source.model.generate(
        input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
        max_new_tokens=limit, temperature=None, top_p=None, pad_token_id=source.tokenizer.pad_token_id,
    )  # fmt: skip
    return out[0, len(ids) :].tolist()


def test_requests_together_give_what_each_gives_alone(source):
    given = prompts(source)
    expected = [directly(source, ids, 12) for ids in given]
    assert [each.token_ids for each in sample(source, given)] == expected
    assert len({tuple(ids) for ids in expected}) > 1


def test_log_probs_are_the_models(source):
    import torch

    (given, *_) = prompts(source)
    (sampled,) = sample(source, [given], logprobs=True)
    with torch.no_grad():
        logits = source.model(torch.tensor([given + sampled.token_ids])).logits[0, len(given) - 1 : -1]
    expected = logits.log_softmax(-1)[range(len(sampled.token_ids)), sampled.token_ids]
    assert sampled.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_every_conversation_has_its_own_limit_and_its_own_end(source):
    given = prompts(source)[:4]
    stops = [[source.tokenizer.decode(each.token_ids[2:4])] for each in sample(source, given)]
    params = [{**GREEDY, "max_new_tokens": 8 + n, "stop": stop} for n, stop in enumerate(stops)]

    async def ask(*numbers):
        async with source:
            return await asyncio.gather(*(source.sample(given[number], params[number]) for number in numbers))

    together = asyncio.run(ask(0, 1, 2, 3))
    assert together == [asyncio.run(ask(number))[0] for number in range(4)]
    for limit, sampled in enumerate(together, start=8):
        assert len(sampled.token_ids) <= limit
        assert sampled.stop_reason == "length" or len(sampled.token_ids) < limit


def test_a_stop_token_ends_a_turn(source):
    (given, *_) = prompts(source)
    (free,) = sample(source, [given])
    (stopped,) = sample(source, [given], stop_token_ids=[free.token_ids[3]])
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[3]) + 1]
    assert stopped.stop_reason == "stop"


def test_a_batch_that_fails_fails_its_conversations_and_no_other(source):
    async def ask():
        async with source:
            with pytest.raises(KeyError):
                await source.sample([1], {"top_p": 1.0, "max_new_tokens": 1})
            return await source.sample([1], GREEDY)

    assert asyncio.run(ask()).token_ids


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="transformers cannot load"):
        LocalModel(str(tmp_path), ChatTokenizer(None, None), Sampling())
