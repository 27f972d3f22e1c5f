"""`tool_call_agent` against verl's own `tool_agent`: the same tokens for the same generations, and where not, why.

Both are made by hydra as verl's worker makes them and talk with a server that plays the same tokens to either.
"""

import asyncio
import json
import random

import pytest

from tests.agents.server import Server, make_loop

SAMPLING = {"temperature": 1.0, "logprobs": True}
ROW = {"raw_prompt": [{"role": "user", "content": "What is 6*7?"}], "tools_kwargs": {}, "extra_info": {}}
ANSWER = "It is 42."
WORDS = ["größer", "日本", "🧮", "x", "\n", " ", '"', "\\", "{", "}", "</tool>", "42", "é", "\u2028"]

TOOLS = """
from agent_rl.tools import Tool, ToolOutput

class Echo(Tool):
    name, description = "echo", "Say it again."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def call(self, arguments):
        return ToolOutput(arguments["text"][::-1], reward=0.5)

class Price(Tool):
    name, description = "price", "The price of a thing."
    parameters = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}

    def call(self, arguments):
        return str(self.create_kwargs.get("prices", {}).get(arguments["item"], "none"))

class Counter(Tool):
    name, description, parameters, count = "counter", "d", {"type": "object", "properties": {}}, 0

    async def call(self, arguments):
        self.count += 1
        return f"count {self.count}"

class Long(Tool):
    name, description, parameters = "long", "d", {"type": "object", "properties": {}}

    async def call(self, arguments):
        return "a" * 300
"""


class VerlServer(Server):
    """As verl's own, which lets a request without a limit have what is left of the response."""

    limit = 512

    async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
        start = self.requests[0]["ids"] if self.requests else prompt_ids
        left = self.limit - (len(prompt_ids) - len(start))
        params = {"max_new_tokens": max(0, left), **sampling_params}
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=params, **more)


@pytest.fixture(scope="module")
def both(compose, tokenizer, tmp_path_factory):
    """Runs verl's loop and ours over the same turns and gives both outputs; a loop that raises gives its exception."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "tools.py").write_text(TOOLS)
    names = ("Echo", "Price", "Counter", "Long")
    (folder / "tools.yaml").write_text("tools:\n" + "".join(f"  - class_name: tools.py:{name}\n" for name in names))
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={folder}/tools.yaml",
        "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=8",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=8",
    ]
    configs = {}

    def run(*turns, more=(), row=None, length=512):
        if tuple(more) not in configs:
            configs[tuple(more)] = compose(*overrides, *more)
        config = configs[tuple(more)].copy()
        config.actor_rollout_ref.rollout.response_length = length

        async def one(name):
            server = VerlServer(tokenizer, *turns)
            server.limit = length
            try:
                return await make_loop(config, server, tokenizer, name=name).run(SAMPLING, **{**ROW, **(row or {})})
            except Exception as error:
                return error

        return asyncio.run(one("tool_agent")), asyncio.run(one("tool_call_agent"))

    return run


def call(name="echo", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def same(verls, ours, length=512):
    assert ours.prompt_ids == verls.prompt_ids
    assert ours.response_ids == verls.response_ids
    assert ours.response_mask == verls.response_mask
    assert ours.response_logprobs == verls.response_logprobs
    assert ours.num_turns == verls.num_turns
    if len(ours.response_ids) < length:
        assert ours.extra_fields["tool_rewards"] == verls.extra_fields["tool_rewards"]


def conversation(seed):
    """Up to six turns with up to six calls in all, in any words; some turns are nothing but the end token."""
    chance = random.Random(seed)

    def words():
        return "".join(chance.choices(WORDS, k=chance.randrange(8)))

    turns, left = [], chance.randrange(7)
    while left:
        calls = chance.randint(1, min(3, left))
        left -= calls
        turns.append(words() + "\n".join(call(text=words()) for _ in range(calls)) + words())
    return [*turns, chance.choice(["", words(), ANSWER])]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_conversations_are_the_same(both, first):
    for seed in range(first, first + 20):
        same(*both(*conversation(seed), length=2048), 2048)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_conversations_that_are_cut_are_the_same(both, first):
    for seed in range(first, first + 20):
        length = random.Random(seed).randint(1, 200)
        same(*both(*conversation(seed), length=length), length)


def test_limit_on_turns_is_the_same(both):
    more = ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2"]
    same(*both(call(text="a"), call(text="b"), ANSWER, more=more))


def test_rows_own_arguments_and_selection_are_the_same(both):
    row = {
        "extra_info": {"tool_selection": ["price"]},
        "tools_kwargs": {"price": {"create_kwargs": {"prices": {"pear": 3}}}},
    }
    verls, ours = both(call("price", item="pear"), ANSWER, row=row)
    same(verls, ours)
    assert ours.extra_fields["trajectory"].turns[0].observation == "3"


def test_what_is_no_call_in_json_is_the_same(both):
    for text in ('{"name": "echo"}', "</tool_call>", "<tool_response>x</tool_response>", "<tool call>"):
        same(*both(text))


# Where they differ, on purpose


MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"


@pytest.mark.parametrize(
    ("turns", "more", "verls_words", "our_words"),
    [
        ([call(text="abc") + "<tool_call>{</tool_call>"], (), "cba", "I could not read"),
        ([call("ecko", text="a")], (), "Unknown function 'ecko'", "Did you mean 'echo'?"),
        ([call("long")], (), "a...(truncated)...a", "a...(44 characters cut)...a"),
        (
            [call(text="abc") + call(text="def")],
            (f"{MULTI_TURN}.max_parallel_calls=1",),
            "cba",
            "Skipped: at most 1 calls are run in one turn",
        ),
        ([call("counter"), call("counter")], (), "count 1", "count 2"),
    ],
)  # fmt: skip
def test_what_the_policy_is_told_differs(both, tokenizer, turns, more, verls_words, our_words):
    """A broken call, an unknown tool, a long result, too many calls, and how long a tool's state lives."""
    verls, ours = (tokenizer.decode(output.response_ids) for output in both(*turns, ANSWER, more=more))
    assert verls_words in verls
    assert our_words in ours
    assert our_words not in verls


def test_call_in_a_thought_is_run_by_verl_and_not_by_ours(both):
    verls, ours = both(f"<think>{call(text='a')}</think>No.", ANSWER)
    assert verls.response_ids[: len(ours.response_ids)] == ours.response_ids
    assert len(verls.response_ids) > len(ours.response_ids)


def test_calls_of_a_turn_that_fills_the_response_are_run_by_ours_only(both, tokenizer):
    length = len(tokenizer.encode(call(text="a"), add_special_tokens=False)) + 1
    verls, ours = both(call(text="a"), ANSWER, length=length)
    same(verls, ours, length)
    assert (verls.extra_fields["tool_rewards"], ours.extra_fields["tool_rewards"]) == ([], [0.5])
