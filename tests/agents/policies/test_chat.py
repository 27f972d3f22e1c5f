"""Episodes over a real HTTP endpoint on loopback, and endpoints that misbehave."""

import asyncio
import base64
import io
import json
import math

import pytest

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.chat import ChatEndpoint
from agent_rl.agents.policies.source import PolicyUsage, open_client
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import ConfigError, EngineError, UnscoredError
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import StopReason, ToolCall
from tests.support.http_faults import FaultyServer, answer
from tests.support.openai_server import MODEL, Server, words

pytestmark = pytest.mark.usefixtures("quick_delays")

KEY = "sk-secret-of-the-test"
PROMPT = [{"role": "user", "content": "What is 12+30?"}]
SPECS = [ToolSpec.from_class(Calculator)]


def endpoint(server, model=MODEL, api_key_env=None, **sampling):
    return ChatEndpoint(open_client(server.url, model, api_key_env=api_key_env, timeout_s=5), Sampling(**sampling))


def said(content=None, finish="stop", usage=None, **message):
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {"choices": [choice], **({} if usage is None else {"usage": usage})}


def used(prompt, sampled):
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


async def episode(policy, budget=None):
    async with ToolSession(SPECS, default_timeout_s=5) as session:
        return await run_episode(policy, ReactFormat(), session, PROMPT, budget or EpisodeBudget())


async def over(server, **options):
    usage = PolicyUsage()
    async with endpoint(server, **options) as source:
        await source.check()
        return await episode(source.policy(usage, seed=3)), usage


def talk(server, play, tools=(), **options):
    """What `play` gives for a conversation that has begun, and the conversation."""

    async def talking():
        async with endpoint(server, **options) as source:
            policy = source.policy(PolicyUsage())
            await policy.begin(PROMPT, tools)
            return await play(policy), policy

    return asyncio.run(talking())


def turns(server, number, **options):
    """So many turns of one conversation, each answered by the environment."""

    async def play(policy):
        found = []
        for _ in range(number):
            found.append(await policy.generate())
            await policy.extend([{"role": "user", "content": "go on"}])
        return found

    return talk(server, play, **options)


def refusal(server, error, **options):
    with pytest.raises(error) as caught:
        turns(server, 1, **options)
    return str(caught.value)


def test_the_same_transcript_as_a_script():
    async def both():
        async with Server(calls=2) as server:
            over_http, usage = await over(server)
            return over_http, usage, server.requests

    trajectory, usage, requests = asyncio.run(both())
    prompts = [words(request["messages"]) for request in requests]
    assert trajectory.prompt_tokens == prompts[0]
    assert usage.input_tokens == sum(prompts)
    assert trajectory.response_tokens == prompts[-1] + trajectory.turns[-1].tokens - prompts[0]
    script = [turn.text for turn in trajectory.turns]
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.turns[0].results[0].text == "42"
    scripted = asyncio.run(episode(ScriptedPolicy(script)))
    for each in (trajectory, scripted):
        each.ended = each.seconds = each.prompt_tokens = each.response_tokens = each.longest_tokens = 0
        for turn in each.turns:
            turn.tokens = turn.generation_seconds = turn.tool_seconds = 0
            for result in turn.results:
                result.seconds = 0
    assert trajectory.to_dict() == scripted.to_dict()
    assert [request["seed"] for request in requests] == [3, 3, 3]
    assert requests[0]["stop"] == ["\nObservation:"]
    assert "Observation: none" not in json.dumps(requests)  # what follows a stop string is not in the history
    assert usage.requests == 3


def test_what_is_left_of_the_tokens_is_what_a_turn_may_have():
    with FaultyServer(*[answer(200, said("a", usage=used(10 + 7 * n, 4))) for n in range(3)]) as server:
        _, policy = turns(server, 3, max_response_tokens=40)
    characters = len(PROMPT[0]["content"]) + 1
    first = math.ceil(len("go on") * 14 / characters)
    second = math.ceil(len("go on") * 21 / (characters + len("go on") + 1))
    limits = [json.loads(request.body)["max_tokens"] for request in server.requests]
    assert limits == [40, 40 - 4 - first, 40 - 11 - second]
    assert policy.response_tokens == 18


def test_a_replaced_conversation_counts_its_own_tokens():
    async def play(policy):
        await policy.generate()
        policy.reserve = 5
        await policy.begin([{"role": "user", "content": "Go on from here."}], [])
        await policy.generate()
        await policy.generate()

    answers = [said("a", usage=used(10, 4)), said("b", usage=used(30, 6)), said("c", usage=used(37, 1))]
    with FaultyServer(*[answer(200, each) for each in answers]) as server:
        _, policy = talk(server, play, max_response_tokens=20)
    limits = [json.loads(request.body)["max_tokens"] for request in server.requests]
    assert limits == [20, 15, 9]  # nothing was appended
    assert (policy.prompt_tokens, policy.response_tokens) == (10, 4 + 8)


def test_a_prompt_is_as_long_as_in_training():
    """A longer one is not scored; of a replaced conversation the tokens beyond the limit count as response."""

    async def play(policy):
        await policy.generate()
        await policy.begin(PROMPT, [])
        await policy.generate()

    limits = {"max_prompt_tokens": 20, "max_response_tokens": 50}
    with FaultyServer(*[answer(200, said("a", usage=used(tokens, 4))) for tokens in (20, 30)]) as server:
        assert talk(server, play, **limits)[1].response_tokens == 4 + 10 + 4
    with (
        FaultyServer(answer(200, said("a", usage=used(21, 4)))) as server,
        pytest.raises(UnscoredError, match=r"has 21 tokens, more than sampling\.max_prompt_tokens=20"),
    ):
        turns(server, 1, **limits)


def test_an_observation_that_leaves_no_token_is_not_appended():
    async def play(policy):
        await policy.generate()
        taken = [await policy.extend([{"role": "user", "content": text}]) for text in ("word " * 30, "short")]
        return taken, [message["content"] for message in policy.messages[1:]]

    with FaultyServer(answer(200, said("a", usage=used(10, 4)))) as server:
        found, _ = talk(server, play, max_response_tokens=20)
    assert found == ([False, True], ["a", "short"])


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"matched_stop": "</search>"}, "<search>x</search>"),  # SGLang
        ({"stop_reason": "</search>"}, "<search>x</search>"),  # vLLM
        ({"matched_stop": 151645}, "<search>x</search>"),  # a token: the tag that is left open says it
        ({}, "<search>x</search>"),
    ],
)
def test_a_stop_string_that_belongs_to_the_turn_is_kept(choice, text):
    async def play(policy):
        return (await policy.generate(["</search>", "</answer>"], keep_stop=True)).text

    for content in ("<search>x", "<search>x</search> and more"):
        body = said(content)
        body["choices"][0] |= choice
        with FaultyServer(answer(200, body)) as server:
            assert talk(server, play)[0] == text
    with FaultyServer(answer(200, said("<search>x", "length"))) as server:
        assert talk(server, play)[0] == "<search>x"


def test_a_turn_that_was_cut_off_is_one():
    with FaultyServer(answer(200, said("abc", "length"))) as server:
        ((turn,), _) = turns(server, 1)
    assert (turn.text, turn.finish, turn.tokens) == ("abc", "length", 0)  # no usage was reported


def test_sampling_and_whatever_else_the_endpoint_wants():
    body = {"max_tokens": None, "max_completion_tokens": 5, "reasoning_effort": "low"}
    with FaultyServer(default=answer(200, said("a"))) as server:
        turns(server, 1, temperature=0.5, top_p=0.9, top_k=20, body=body)
    sent = json.loads(server.requests[0].body)
    assert sent["messages"] == PROMPT
    del sent["messages"]
    assert sent == {
        "model": MODEL, "temperature": 0.5, "top_p": 0.9, "top_k": 20,
        "max_completion_tokens": 5, "reasoning_effort": "low",
    }  # fmt: skip
    assert server.requests[0].path == "/v1/chat/completions"


CALL = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "1+1"}'}}


def test_tool_calls_and_their_results_keep_their_ids():
    schema = [{"type": "function", "function": {"name": "calculator"}}]
    second = {**CALL, "id": "c2"}
    steps = [answer(200, said(None, "tool_calls", tool_calls=[CALL, second])), answer(200, said("2"))]

    async def play(policy):
        turn = await policy.generate()
        await policy.extend([{"role": "tool", "content": "2"}, {"role": "tool", "content": "3"}])
        await policy.generate()
        return turn

    with FaultyServer(*steps) as server:
        turn, _ = talk(server, play, schema)
    assert turn.calls == [ToolCall("calculator", {"expression": "1+1"}, call_id) for call_id in ("c1", "c2")]
    assert turn.text == ""
    sent = json.loads(server.requests[1].body)
    assert sent["tools"] == schema
    assert sent["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [CALL, second]},
        {"tool_call_id": "c1", "role": "tool", "content": "2"},
        {"tool_call_id": "c2", "role": "tool", "content": "3"},
    ]


def test_images_of_tools_are_sent_as_the_interface_takes_them():
    from PIL import Image

    content = [{"type": "image", "image": Image.new("RGB", (2, 3), "red")}, {"type": "text", "text": "look"}]

    async def play(policy):
        await policy.generate()
        await policy.extend([{"role": "user", "content": content}])
        await policy.generate()

    with FaultyServer(default=answer(200, said("a", usage=used(10, 4)))) as server:
        talk(server, play)
    image, text = json.loads(server.requests[1].body)["messages"][2]["content"]
    assert text == {"type": "text", "text": "look"}
    data = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert Image.open(io.BytesIO(data)).getpixel((1, 2)) == (255, 0, 0)
    assert isinstance(content[0]["image"], Image.Image)  # the caller's own message is left alone


@pytest.mark.parametrize("arguments", ['{"expression": ', "[1]", 7])
def test_tool_calls_that_cannot_be_read_become_text(arguments):
    broken = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    with FaultyServer(answer(200, said("Hm.", "tool_calls", tool_calls=[broken]))) as server:
        ((turn,), policy) = turns(server, 1)
    assert turn.calls is None
    assert turn.text == f'Hm.\n<tool_call>\n{{"name": "calculator", "arguments": {arguments}}}\n</tool_call>'
    assert policy.messages[1] == {"role": "assistant", "content": turn.text}, "no result answers the call"


def test_tool_calls_of_a_cut_turn_become_text():
    with FaultyServer(answer(200, said("Hm.", "length", tool_calls=[CALL]))) as server:
        ((turn,), policy) = turns(server, 1)
    assert turn.finish == "length"
    assert policy.messages[1] == {"role": "assistant", "content": turn.text}, "no result answers the call"


@pytest.mark.parametrize("step", [answer(400, {"error": "no"}), answer(200, {"choices": []})])
def test_an_endpoint_that_gives_no_answer_is_the_engines_fault(step):
    with FaultyServer(step) as server:
        assert refusal(server, EngineError)


@pytest.mark.parametrize(
    "words", ["maximum context length is 9", "longer than the model's context length", "context_length_exceeded"]
)
def test_a_conversation_that_outgrows_the_context_ends_as_one_that_spent_its_tokens(words):
    refused = answer(400, {"error": {"code": words}})
    with FaultyServer(refused) as server:
        assert "max_response_tokens=2048 exceed" in refusal(server, UnscoredError)
    with FaultyServer(answer(200, said("a", usage=used(9, 1))), refused) as server:
        (_, turn), _ = turns(server, 2)
    assert turn.finish == "length"


def check(server, **options):
    async def ask():
        async with endpoint(server, **options) as source:
            await source.check()

    asyncio.run(ask())


def test_check_accepts_a_known_model_and_refuses_a_missing_one():
    models = {"data": [{"id": "qwen-small"}, {"id": "other"}]}
    with FaultyServer(default=answer(200, models)) as server:
        check(server, model="qwen-small")
        with pytest.raises(ConfigError, match=r"has no model 'qwen-smal'.*Did you mean 'qwen-small'"):
            check(server, model="qwen-smal")
    for status in (401, 403):
        with FaultyServer(default=answer(status)) as server, pytest.raises(ConfigError, match="API key"):
            check(server)
    for other in (answer(404), answer(200, b"hello"), answer(200, [])):  # such an endpoint has no list
        with FaultyServer(default=other) as server:
            check(server)
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:1/v1 does not answer"):
        check(type("", (), {"url": "http://127.0.0.1:1"}))


@pytest.mark.parametrize(
    ("given", "path"), [("", "/v1"), ("/", "/v1"), ("/v1", "/v1"), ("/v1/", "/v1"), ("/openai/deep", "/openai/deep")]
)
def test_an_address_with_a_path_is_left_as_it_is(given, path):
    assert open_client(f"http://host:1{given}", "m").url == f"http://host:1{path}"
