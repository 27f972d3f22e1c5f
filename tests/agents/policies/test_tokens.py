"""Conversations in token ids: the ones of training, with another server behind them."""

import asyncio

from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.source import PolicyUsage
from agent_rl.agents.policies.tokens import Sampled, TokenSource
from agent_rl.agents.react import ReactFormat
from agent_rl.verl_adapter.inspection import load_chat_tokenizer

PROMPT = [{"role": "user", "content": "What is 12+30?"}]


class Scripted(TokenSource):
    """Plays texts, each ended by the end-of-turn token."""

    def __init__(self, model, sampling, texts):
        super().__init__(load_chat_tokenizer(model), sampling)
        self.texts, self.asked = list(texts), []

    async def sample(self, prompt_ids, params):
        self.asked.append((list(prompt_ids), params))
        ids = [*self.tokenizer.encode(self.texts.pop(0)), self.tokenizer.eos_token_id]
        return Sampled(ids, [-0.5] * len(ids), "stop")


async def talk(source, usage, seed=None):
    async with source:
        policy = source.policy(usage, seed)
        await policy.begin(PROMPT, [])
        first = await policy.generate(["\nObservation:"])
        await policy.extend([{"role": "user", "content": "Observation: 42"}])
        return policy, first, await policy.generate()


def test_what_was_sampled_is_appended_and_counted(model_dir):
    source = Scripted(model_dir, Sampling(temperature=0.5, top_k=7), ["I compute.\nObservation: 1", "It is 42."])
    usage = PolicyUsage()
    policy, first, second = asyncio.run(talk(source, usage, seed=3))
    assert (first.text, second.text) == ("I compute.", "It is 42.")
    (_, params), (second_prompt, _) = source.asked
    assert params == {
        "temperature": 0.5, "top_p": 1.0, "top_k": 7, "seed": 3, "max_new_tokens": 2048, "stop": ["\nObservation:"],
    }  # fmt: skip
    assert (usage.requests, usage.input_tokens) == (2, policy.prompt_tokens + len(second_prompt))
    shown = source.tokenizer.decode(policy.ids)
    conversation = [
        *PROMPT,
        {"role": "assistant", "content": "I compute.\nObservation:"},  # a token that is not cut in two
        {"role": "user", "content": "Observation: 42"},
        {"role": "assistant", "content": "It is 42."},
    ]
    assert shown == source.tokenizer.apply_chat_template(conversation, tokenize=False).rstrip("\n")
    assert policy.logprobs is None


def test_log_probs_are_returned_on_request(model_dir):
    source = Scripted(model_dir, Sampling(), ["a", "b"])
    source.logprobs = True
    policy, *_ = asyncio.run(talk(source, PolicyUsage()))
    assert source.asked[0][1]["logprobs"] is True
    assert {value for value, sampled in zip(policy.logprobs, policy.mask, strict=True) if sampled} == {-0.5}


def test_a_formats_own_stop_tokens_and_special_tokens(model_dir):
    class Special(ReactFormat):
        stop_tokens, special_tokens = ("<|im_start|>",), True

    async def one(source):
        policy = source.policy(PolicyUsage(), format=Special())
        await policy.begin(PROMPT, [])
        return await policy.generate()

    source = Scripted(model_dir, Sampling(), ["a<|im_start|>b"])
    assert asyncio.run(one(source)).text == "a<|im_start|>b"
    assert source.asked[0][1]["stop_token_ids"] == [source.tokenizer.convert_tokens_to_ids("<|im_start|>")]
