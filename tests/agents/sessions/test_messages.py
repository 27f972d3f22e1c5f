"""Anthropic's messages over HTTP, with plain requests and a scripted engine."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from agent_rl.agents.sessions.messages import messages_request
from agent_rl.agents.sessions.request import RequestError, message_key

TOOL = {"name": "add", "description": "Add.", "input_schema": {"type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}  # fmt: skip
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
CALL = f"I add.\n{ADD}"
THOUGHT = f"<think>\nOne and two.\n</think>\n\n{CALL}"
USER = {"role": "user", "content": "1 + 2?"}


@pytest.fixture
def talk(serve: Callable[..., Any]) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Opens a session: `async with talk(*turns) as (send, session)`; `send` posts a body, and returns the response."""

    @asynccontextmanager
    async def open_client(*turns: Any, **options: Any) -> AsyncIterator[Any]:
        async with (
            serve(*turns, **options) as (url, session),
            httpx.AsyncClient(base_url=url, headers={"x-api-key": session.id}, timeout=60) as http,
        ):

            async def send(path: str = "/v1/messages", **body: Any) -> httpx.Response:
                return await http.post(path, json={"model": "policy", "max_tokens": 200, **body})

            yield send, session

    return open_client


def results_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": block["id"], "content": str(sum(block["input"].values()))}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    events = []
    for text in response.text.strip().split("\n\n"):
        name, data = text.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


@pytest.mark.parametrize("thinking", [{}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}])
async def test_an_ordinary_agent_has_one_sequence(talk: Callable[..., Any], thinking: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []

    async with talk(f"{THOUGHT}\n{ADD}", CALL, "It is 3.") as (send, session):
        messages: list[Any] = [USER]
        while not seen or results_of(seen[-1]):
            request = {"system": "Use the tool.", "messages": messages, "tools": [TOOL], **thinking}
            count = (await send("/v1/messages/count_tokens", **request)).json()
            seen.append((await send(**request)).json())
            assert seen[-1]["usage"]["input_tokens"] == count["input_tokens"]
            messages.append({"role": "assistant", "content": seen[-1]["content"]})
            messages.append({"role": "user", "content": results_of(seen[-1])})
    kinds = [block["type"] for block in seen[0]["content"]]
    assert kinds == ["thinking"] * bool(thinking) + ["text", "tool_use", "tool_use"]
    if thinking:
        assert seen[0]["content"][0]["thinking"] == "One and two."
    assert [each["stop_reason"] for each in seen] == ["tool_use", "tool_use", "end_turn"]
    assert seen[2]["content"] == [{"type": "text", "text": "It is 3."}]
    (sequence,) = session.policy.sequences()
    assert sum(sequence.mask) == sum(each["usage"]["output_tokens"] for each in seen)
    assert session.trajectory.info["gateway"]["conversations"] == 1


async def test_a_stream_has_anthropics_order_of_events(talk: Callable[..., Any]) -> None:
    async with talk(THOUGHT) as (send, _):
        body = {"messages": [USER], "tools": [TOOL], "thinking": {"type": "adaptive"}, "stream": True}
        events = events_of(await send(**body))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in events] == [
        "message_start", block[0], block[1], *block[1:], *block, *block, "message_delta", "message_stop",
    ]  # fmt: skip
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta",
    ]  # fmt: skip
    assert json.loads(deltas[3]["partial_json"]) == {"a": 1, "b": 2}
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [start["type"] for start in starts] == ["thinking", "text", "tool_use"]
    assert starts[2]["input"] == {}
    assert [event["index"] for event in events if "index" in event] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    ("body", "reason", "stop", "text"),
    [
        ({"stop_sequences": ["three", "two"]}, "stop_sequence", "two", "one"),
        ({"max_tokens": 2}, "max_tokens", None, None),
        ({"stop_sequences": ["six"]}, "end_turn", None, "one two three"),
    ],
)
async def test_stop_reasons(
    talk: Callable[..., Any], body: dict[str, Any], reason: str, stop: str | None, text: str | None
) -> None:
    async with talk("one two three") as (send, _):
        answer = (await send(messages=[USER], **body)).json()
        assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, stop)
        if text is not None:
            assert answer["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_have_anthropics_form(talk: Callable[..., Any], stream: bool) -> None:
    async with talk(prompt_length=64) as (send, _):
        long = await send(messages=[{"role": "user", "content": "word " * 200}], stream=stream)
        assert long.status_code == 400
        assert long.json()["type"] == "error"
        assert long.json()["error"]["type"] == "invalid_request_error"
        assert long.json()["error"]["message"].startswith("prompt is too long: ")
        prefill = await send(messages=[USER, {"role": "assistant", "content": "{"}], stream=stream)
        assert (prefill.status_code, prefill.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_wrong_key_is_an_authentication_error(serve: Callable[..., Any]) -> None:
    async with serve() as (url, _):
        async with httpx.AsyncClient(base_url=url, headers={"x-api-key": "other"}) as http:
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                answer = await http.post(path, json={"messages": [USER]})
                assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")


def test_results_keep_their_order_before_the_text_next_to_them() -> None:
    blocks = [
        {"type": "text", "text": "Hurry."},
        {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "b", "cache_control": {}}]},
        {"type": "tool_result", "tool_use_id": "1", "content": "no file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "3"},
    ]
    assert messages_request({"messages": [{"role": "user", "content": blocks}]}).messages == [
        {"role": "tool", "content": "b", "tool_call_id": "2"},
        {"role": "tool", "content": "Error: no file", "tool_call_id": "1"},
        {"role": "tool", "content": "", "tool_call_id": "3"},
        {"role": "user", "content": "Hurry."},
    ]


USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1, "b": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "3"}


@pytest.mark.parametrize(
    "messages",
    [
        [("assistant", [{"type": "text", "text": "I add."}, USE]), ("user", [RESULT])],
        [("assistant", [{"type": "thinking", "thinking": "?", "signature": ""}, {"type": "text", "text": "I add."},
                        {**USE, "id": "9", "input": {"b": 2.0, "a": 1}}]),
         ("user", [{**RESULT, "tool_use_id": "9", "content": [{"type": "text", "text": "3"}]}])],
        [("assistant", "I add."), ("assistant", [USE]), ("user", [RESULT])],
    ],
)  # fmt: skip
def test_equal_histories_have_equal_keys(messages: list[Any]) -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    turn = {"role": "assistant", "content": "I add.", "tool_calls": [call]}
    read = messages_request({"messages": [{"role": role, "content": content} for role, content in messages]}).messages
    assert [*map(message_key, read)] == [*map(message_key, [turn, {"role": "tool", "content": "3"}])]


def test_a_header_in_the_system_prompt_that_changes_is_left_out() -> None:
    blocks = [{"type": "text", "text": f"x-anthropic-billing-header: cch={n};"} for n in range(2)]
    read = [messages_request({"system": [block, {"type": "text", "text": "Be terse."}], "messages": [USER]})
            for block in blocks]  # fmt: skip
    assert [each.messages[0] for each in read] == [{"role": "system", "content": "Be terse."}] * 2


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "a tool must be a function"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "structured outputs"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image' is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused(body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        messages_request({"messages": [USER], **body})


@pytest.mark.parametrize(
    ("choice", "tools", "forced"),
    [({}, 1, False), ({"type": "auto"}, 1, False), ({"type": "any"}, 1, True),
     ({"type": "tool", "name": "add"}, 1, True), ({"type": "none"}, 0, False)],
)  # fmt: skip
def test_tool_choice(choice: dict[str, Any], tools: int, forced: bool) -> None:
    read = messages_request({"messages": [USER], "tools": [TOOL], "tool_choice": choice})
    assert read.forced == forced
    assert [tool["function"]["parameters"] for tool in read.tools] == [TOOL["input_schema"]] * tools
