"""OpenAI's responses over HTTP, with OpenAI's SDK as the client and a scripted engine."""

import json
from collections.abc import Callable
from typing import Any

import openai as openai_sdk
import pytest

from agent_rl.agents.sessions.request import RequestError, message_key
from agent_rl.agents.sessions.responses import responses_request

TOOL = {"type": "function", "name": "add", "description": "Add.", "strict": False, "parameters": {"type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}  # fmt: skip
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
THOUGHT = f"<think>\nOne and two.\n</think>\n\n{CALL}"


def outputs_of(response: Any) -> list[dict[str, Any]]:
    return [
        {**OUTPUT, "call_id": item.call_id, "output": str(sum(json.loads(item.arguments).values()))}
        for item in response.output
        if item.type == "function_call"
    ]  # fmt: skip


@pytest.mark.parametrize("turn", [CALL, THOUGHT])
async def test_an_agent_that_sends_the_history_has_one_sequence(play: Callable[..., Any], turn: str) -> None:
    seen = []

    async with play(turn, "It is 3.") as (openai, session):
        given: list[Any] = [{"role": "user", "content": "1 + 2?"}]
        while not seen or outputs_of(seen[-1]):
            request = {"model": "policy", "instructions": "Use the tool.", "input": given, "tools": [TOOL]}
            seen.append(await openai.responses.create(**request))
            given += [item.model_dump(exclude_none=True) for item in seen[-1].output] + outputs_of(seen[-1])
    kinds = [item.type for item in seen[0].output]
    assert kinds == ["reasoning"] * (turn == THOUGHT) + ["message", "function_call"]
    if turn == THOUGHT:
        assert seen[0].output[0].summary[0].text == "One and two."
    assert seen[0].output_text == "I add."
    assert (seen[1].output_text, seen[1].status) == ("It is 3.", "completed")
    assert seen[1].usage.total_tokens == seen[1].usage.input_tokens + seen[1].usage.output_tokens
    (sequence,) = session.policy.sequences()
    assert sum(sequence.mask) == sum(each.usage.output_tokens for each in seen)
    assert session.trajectory.turns[0].results[0].text == "3"


async def test_an_agent_that_continues_a_response_has_one_sequence(play: Callable[..., Any]) -> None:
    seen = []

    async with play(CALL, "It is 3.", "Yes.") as (openai, session):
        request = {"model": "policy", "instructions": "Use the tool.", "tools": [TOOL]}
        seen.append(await openai.responses.create(input="1 + 2?", **request))
        for each in (outputs_of(seen[0]), "Sure?"):
            seen.append(await openai.responses.create(input=each, previous_response_id=seen[-1].id, **request))
        with pytest.raises(openai_sdk.BadRequestError, match=r"'resp_0' not found") as raised:
            await openai.responses.create(input="1 + 2?", previous_response_id="resp_0", **request)
        assert raised.value.code == "previous_response_not_found"
    assert seen[2].previous_response_id == seen[1].id
    assert len(session.policy.sequences()) == 1
    assert session.trajectory.info["gateway"]["conversations"] == 1


async def test_instructions_belong_to_their_request_only(play: Callable[..., Any], tokenizer: Any) -> None:
    async with play("Hi.", "Bye.") as (openai, session):
        first = await openai.responses.create(model="policy", input="Hello", instructions="Be terse.")
        await openai.responses.create(model="policy", input="And now?", previous_response_id=first.id)
    rendered = [tokenizer.decode(request["ids"]) for request in session.engine.requests]
    assert ["Be terse." in each for each in rendered] == [True, False]
    assert "Hi." in rendered[1]


async def test_a_stream_has_openais_order_of_events(play: Callable[..., Any]) -> None:
    async with play(THOUGHT) as (openai, _):
        request = {"model": "policy", "input": "1 + 2?", "tools": [TOOL], "stream": True}
        events = [event async for event in await openai.responses.create(**request)]
    item = "response.output_item.added", "response.output_item.done"
    summary = [f"response.reasoning_summary_{each}" for each in ("part.added", "text.delta", "text.done", "part.done")]
    text = [f"response.{each}" for each in
            ("content_part.added", "output_text.delta", "output_text.done", "content_part.done")]  # fmt: skip
    call = [f"response.function_call_arguments.{each}" for each in ("delta", "done")]
    assert [event.type for event in events] == [
        "response.created", "response.in_progress", item[0], *summary, item[1], item[0], *text, item[1], item[0], *call,
        item[1], "response.completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    whole = events[-1].response
    assert [event.item for event in events if event.type == item[1]] == whole.output
    assert json.loads(whole.output[2].arguments) == {"a": 1, "b": 2}


async def test_a_turn_that_is_cut_is_incomplete(play: Callable[..., Any]) -> None:
    async with play("one two three four five") as (openai, _):
        seen = await openai.responses.create(model="policy", input="Hello", max_output_tokens=2)
    assert (seen.status, seen.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert seen.usage.output_tokens == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_is_refused(play: Callable[..., Any], stream: bool) -> None:
    async with play("Hi.", prompt_length=64) as (openai, _):
        with pytest.raises(openai_sdk.BadRequestError) as raised:
            await openai.responses.create(model="policy", input="word " * 200, stream=stream)
        assert raised.value.code == "context_length_exceeded"


CALL_ITEM = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1.0, "b": 2}'}
REASONING = {"type": "reasoning", "id": "r", "summary": []}
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "3"}


@pytest.mark.parametrize(
    "items",
    [
        [REASONING, TEXT, CALL_ITEM, OUTPUT],
        [{"role": "assistant", "content": "I add."}, CALL_ITEM, OUTPUT],
        [CALL_ITEM, TEXT, OUTPUT],
        [TEXT, REASONING, {**CALL_ITEM, "arguments": '{"b":2,"a":1}', "call_id": "d", "id": "fc_1"},
         {**OUTPUT, "call_id": "d", "output": [{"type": "input_text", "text": "3"}]}],
    ],
)  # fmt: skip
def test_equal_histories_have_equal_keys(items: list[dict[str, Any]]) -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    messages = [
        {"role": "assistant", "content": "I add.", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
    ]
    assert [*map(message_key, responses_request({"input": items}).messages)] == [*map(message_key, messages)]


def test_turns_after_each_other_stay_apart() -> None:
    read = responses_request({"input": [TEXT, TEXT, CALL_ITEM, OUTPUT, CALL_ITEM, OUTPUT]}).messages
    assert [(each["role"], len(each.get("tool_calls", ()))) for each in read] == [
        ("assistant", 0), ("assistant", 1), ("tool", 0), ("assistant", 1), ("tool", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"tools": [{"type": "web_search"}]}, "a tool must be a function"),
        ({"text": {"format": {"type": "json_schema"}}}, "json_schema"),
        ({"conversation": "conv_1"}, "conversation is not supported"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
    ],
)
def test_what_cannot_be_honoured_is_refused(body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        responses_request({"input": "1 + 2?", **body})
