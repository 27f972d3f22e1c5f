"""`tool_call_agent` against verl's own `tool_agent`: the same tokens for the same generations, and where not, why.

Both are made by hydra as verl's worker makes them and talk with a server that plays the same tokens to either.
"""

import asyncio
import json
import random
from pathlib import Path

import pytest

pytest.importorskip("verl")

from agent_rl.errors import UnscoredError
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

class Broken(Tool):
    name, description, parameters = "broken", "d", {"type": "object", "properties": {}}

    async def call(self, arguments):
        raise RuntimeError("no")

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
    names = ("Echo", "Price", "Broken", "Long")
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


@pytest.mark.parametrize("first", range(0, 240, 20))
def test_conversations_are_the_same(both, first):
    for seed in range(first, first + 20):
        same(*both(*conversation(seed), length=2048), 2048)


@pytest.mark.parametrize("seed", range(40))
def test_conversations_that_are_cut_are_the_same(both, seed):
    length = random.Random(seed).randint(1, 200)
    same(*both(*conversation(seed), length=length), length)


@pytest.mark.parametrize("first", range(1, 201, 20))
def test_conversation_is_the_same_wherever_it_is_cut(both, first):
    turns = ["Wait.\n" + call(text="größer 日本"), call(text="a") + "\n" + call(text="b"), ANSWER]
    for length in range(first, first + 20):
        same(*both(*turns, length=length), length)


def test_cuts_go_over_the_whole_conversation(both):
    turns = ["Wait.\n" + call(text="größer 日本"), call(text="a") + "\n" + call(text="b"), ANSWER]
    assert 100 < len(both(*turns)[0].response_ids) <= 200


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


def begins_as(verls, ours):
    """Ours went on where verl's ended."""
    length = len(verls.response_ids)
    assert ours.response_ids[:length] == verls.response_ids
    assert ours.response_mask[:length] == verls.response_mask
    assert len(ours.response_ids) > length


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "echo", "arguments": {"text": </tool_call>',
        '<tool_call>{"name": "echo"',
        "<tool_call></tool_call>",
        '<tool_call>["echo"]</tool_call>',
    ],
)
def test_call_that_cannot_be_read_ends_verls_episode_and_is_corrected_in_ours(both, text):
    verls, ours = both(text, ANSWER)
    begins_as(verls, ours)
    assert ours.extra_fields["trajectory"].turns[0].malformed


def test_broken_call_beside_a_good_one_is_dropped_by_verl_and_corrected_by_ours(both, tokenizer):
    verls, ours = both(call(text="abc") + "<tool_call>{</tool_call>", ANSWER)
    assert "cba" in tokenizer.decode(verls.response_ids)
    assert "cba" not in tokenizer.decode(ours.response_ids)
    assert "I could not read" in tokenizer.decode(ours.response_ids)


@pytest.mark.parametrize(
    ("text", "verls_words", "our_words"),
    [
        (call("ecko", text="a"), "Unknown function 'ecko'", "Did you mean 'echo'?"),
        (call("echo"), "Error: ", "Error: "),
        (call("broken"), "Error: broken failed: RuntimeError: no", "Error: broken failed: RuntimeError: no"),
    ],
)
def test_mistakes_are_told_in_our_words_where_the_tool_is_not_reached(both, tokenizer, text, verls_words, our_words):
    verls, ours = both(text, ANSWER, more=["+agent_rl.tools.on_error=observe"])
    assert verls_words in tokenizer.decode(verls.response_ids)
    assert our_words in tokenizer.decode(ours.response_ids)


def test_long_result_says_how_much_was_cut(both, tokenizer):
    verls, ours = both(call("long"), ANSWER)
    assert "a...(truncated)...a" in tokenizer.decode(verls.response_ids)
    assert "a...(44 characters cut)...a" in tokenizer.decode(ours.response_ids)


def test_calls_beyond_the_limit_are_dropped_by_verl_and_told_so_by_ours(both, tokenizer):
    more = ["actor_rollout_ref.rollout.multi_turn.max_parallel_calls=1"]
    verls, ours = both(call(text="abc") + call(text="def"), ANSWER, more=more)
    assert "fed" not in tokenizer.decode(verls.response_ids)
    assert "Skipped" not in tokenizer.decode(verls.response_ids)
    assert "Skipped: at most 1 calls are run in one turn" in tokenizer.decode(ours.response_ids)


def test_call_in_a_thought_is_run_by_verl_and_not_by_ours(both):
    verls, ours = both(f"<think>{call(text='a')}</think>No.", ANSWER)
    begins_as(ours, verls)


def test_turn_that_does_not_end_as_the_template_does_is_closed_in_ours(both, tokenizer):
    ids = [
        *tokenizer.encode(call(text="a"), add_special_tokens=False),
        tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    ]
    verls, ours = both(ids, ANSWER)
    assert "<|endoftext|>\n<|im_start|>" not in tokenizer.decode(ours.response_ids)
    assert "<|endoftext|><|im_end|>\n<|im_start|>user" in tokenizer.decode(ours.response_ids)
    assert "<|endoftext|><|im_end|>" not in tokenizer.decode(verls.response_ids)


def test_generation_without_a_token_is_a_prompt_to_train_on_in_verl_and_unscored_in_ours(both):
    verls, ours = both([])
    assert verls.response_ids == [] or verls.response_mask == []
    assert isinstance(ours, UnscoredError)


def test_calls_of_a_turn_that_fills_the_response_are_run_by_ours_only(both, tokenizer):
    length = len(tokenizer.encode(call(text="a"), add_special_tokens=False)) + 1
    verls, ours = both(call(text="a"), ANSWER, length=length)
    same(verls, ours, length)
    assert (verls.extra_fields["tool_rewards"], ours.extra_fields["tool_rewards"]) == ([], [0.5])


def test_unknown_tool_in_a_selection_is_ignored_by_verl_and_unscored_in_ours(both):
    verls, ours = both(ANSWER, row={"extra_info": {"tool_selection": ["ecko"]}})
    assert not isinstance(verls, Exception)
    assert isinstance(ours, UnscoredError)


def test_state_of_a_tool_lives_for_a_call_in_verl_and_for_the_episode_in_ours(both, tmp_path, tokenizer):
    (Path(tmp_path) / "counter.py").write_text(
        "from agent_rl.tools import Tool\n\n\nclass Counter(Tool):\n"
        "    name, description, parameters = 'counter', 'd', {'type': 'object', 'properties': {}}\n\n"
        "    async def start(self):\n        self.count = 0\n\n"
        "    async def call(self, arguments):\n        self.count += 1\n        return f'count {self.count}'\n"
    )
    (tmp_path / "tools.yaml").write_text("tools:\n  - class_name: counter.py:Counter\n")
    more = [f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path}/tools.yaml"]
    verls, ours = both(call("counter"), call("counter"), ANSWER, more=more)
    assert "count 2" not in tokenizer.decode(verls.response_ids)
    assert "count 2" in tokenizer.decode(ours.response_ids)
