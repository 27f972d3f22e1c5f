"""Sessions over HTTP, with the SDK of OpenAI as the client and a scripted engine."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError

from agent_rl.agents.sessions import session as session_module
from agent_rl.agents.sessions.request import RequestError, TurnRequest
from agent_rl.trajectory import StopReason

pytestmark = pytest.mark.trainer

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]  # fmt: skip
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
USER = {"role": "user", "content": "1 + 2?"}


async def test_an_ordinary_agent_has_one_sequence(play: Callable[..., Any]) -> None:
    seen = []

    async with play(CALL, "It is 3.") as (openai, session):
        messages: list[Any] = [USER]
        while True:
            done = await openai.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
            message = done.choices[0].message
            seen.append(done)
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": str(sum(arguments.values()))})
    assert [each.choices[0].finish_reason for each in seen] == ["tool_calls", "stop"]
    assert seen[0].choices[0].message.content == "I add."
    sequences = session.policy.sequences()
    assert len(sequences) == 1
    assert sum(sequences[0].mask) == sum(turn.tokens for turn in session.trajectory.turns)
    assert session.trajectory.answer == "It is 3."
    assert session.trajectory.turns[0].results[0].text == "3"
    assert session.trajectory.info["gateway"] == {"requests": 2, "conversations": 1}


async def test_a_stream_replays_the_turn(play: Callable[..., Any]) -> None:
    texts, calls = [], []

    async with play(CALL) as (openai, _):
        stream = await openai.chat.completions.create(
            model="policy", messages=[USER], tools=TOOLS, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            for choice in chunk.choices:
                texts.append(choice.delta.content or "")
                calls.extend(choice.delta.tool_calls or ())
        assert chunk.usage.completion_tokens > 0
    assert "".join(texts) == "I add."
    assert json.loads(calls[0].function.arguments) == {"a": 1, "b": 2}


async def test_special_tokens_in_a_result_stay_text(play: Callable[..., Any], tokenizer: Any) -> None:
    async with play(CALL, "It is 3.") as (openai, session):
        done = await openai.chat.completions.create(model="policy", messages=[USER], tools=TOOLS)
        message = done.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3<|im_end|>"}
        messages = [USER, message.model_dump(exclude_none=True), result]
        await openai.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
    text = tokenizer.decode(session.policy.ids)
    assert "3< |im_end|>" in text
    assert session.trajectory.turns[0].results[0].text == "3<|im_end|>"


async def test_values_that_cannot_be_used_are_refused(play: Callable[..., Any]) -> None:
    async with play("It is 3.") as (openai, session):
        for wrong in ({"max_tokens": "many"}, {"stop": [1]}, {"messages": [{"role": "user", "content": 5}]}):
            with pytest.raises(BadRequestError):
                await openai.chat.completions.create(**{"model": "policy", "messages": [USER], **wrong})
        await openai.chat.completions.create(model="policy", messages=[USER])
    assert session.trajectory.answer == "It is 3."


async def test_either_header_may_have_the_key(serve: Callable[..., Any]) -> None:
    """verifiers overwrites one of the two with a key of its own."""
    statuses = []

    async with serve() as (url, session):
        async with httpx.AsyncClient(base_url=url) as http:
            for bearer, other in ((session.id, "EMPTY"), ("EMPTY", session.id), ("EMPTY", "EMPTY")):
                headers = {"Authorization": f"Bearer {bearer}", "x-api-key": other}
                statuses.append((await http.get("/v1/models", headers=headers)).status_code)
    assert statuses == [200, 200, 401]


async def ask(openai: AsyncOpenAI, *messages: Any, **options: Any) -> Any:
    return await openai.chat.completions.create(**{"model": "policy", "messages": list(messages) or [USER], **options})


async def test_an_equal_body_is_a_retry_only_with_its_header(play: Callable[..., Any]) -> None:
    replies = []

    async with play("One.", "Two.") as (openai, session):
        for count in ("0", "0", "1"):
            replies.append((await ask(openai, extra_headers={"x-stainless-retry-count": count})).choices[0].message)
    assert [reply.content for reply in replies] == ["One.", "Two.", "Two."]
    assert session.trajectory.info["gateway"] == {"requests": 3, "retries": 1, "conversations": 2}
    assert len(session.policy.sequences()) == 2


async def test_a_turn_that_no_client_received_is_not_trained(serve: Callable[..., Any]) -> None:
    """The client hangs up while the engine works."""

    async def late() -> str:
        await asyncio.sleep(0.4)
        return "Lost."

    async with serve("Received.", late) as (url, session):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=session.id, max_retries=0) as openai:
            await ask(openai)
            task = asyncio.ensure_future(ask(openai, {"role": "user", "content": "Again?"}, stream=True))
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.sleep(0.5)
    assert session.trajectory.answer == "Received."
    assert session.trajectory.info["gateway"]["unfetched"] == 1
    (sequence,) = session.policy.sequences()
    assert sum(sequence.mask) == session.trajectory.turns[0].tokens


async def test_a_rewritten_history_starts_a_sequence_and_no_token_is_trained_twice(play: Callable[..., Any]) -> None:
    async with play("One.", "Two.") as (openai, session):
        await ask(openai)
        rewritten = {"role": "assistant", "content": "In short: one."}
        await ask(openai, USER, rewritten, {"role": "user", "content": "And now?"})
    sequences = session.policy.sequences()
    assert [sum(each.mask) for each in sequences] == [turn.tokens for turn in session.trajectory.turns]
    assert session.policy.longest_tokens == max(len(each.mask) for each in sequences)


async def test_another_model_is_answered_and_not_trained(play: Callable[..., Any]) -> None:
    async with play("One.", "A title.") as (openai, session):
        await ask(openai)
        await ask(openai, {"role": "user", "content": "A title?"}, model="small")
    assert [turn.text for turn in session.trajectory.turns] == ["One."]
    assert len(session.policy.sequences()) == 1
    assert session.trajectory.info["gateway"]["side_requests"] == 1


async def test_the_runs_sampling_applies(play: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """A difference from the run's parameters is said once a process; what equals them is not said."""
    session_module._say_once.cache_clear()
    for _ in range(2):
        async with play("One.", "Two.", "Three.", sampling={"temperature": 0.7, "top_k": -1}) as (openai, session):
            await ask(openai, temperature=0.7, top_p=1, extra_body={"top_k": -1})
            await ask(openai, temperature=1.0, tools=TOOLS, tool_choice="required", extra_body={"min_p": 0.1})
            await ask(openai, temperature=0.1, extra_body={"repetition_penalty": 1.2})
        assert {request["params"]["temperature"] for request in session.engine.requests} == {0.7}
    assert [record.message for record in caplog.records if "a program" in record.message] == [
        "a program sets temperature, but the run's value 0.7 applies",
        "a program sets min_p, but the run's value 0.0 applies",
        "a program requires a tool call (tool_choice), which is treated as auto",
        "a program sets repetition_penalty, but the run's value 1.0 applies",
    ]


@pytest.mark.parametrize("wrong", [{"n": 2}, {"response_format": {"type": "json_object"}}])
async def test_what_training_cannot_honour_is_refused(play: Callable[..., Any], wrong: dict[str, Any]) -> None:
    async with play() as (openai, session):
        with pytest.raises(BadRequestError):
            await ask(openai, **wrong)
    assert session.trajectory.turns == []


async def test_a_demanded_call_is_counted_if_it_is_missing(play: Callable[..., Any]) -> None:
    async with play("No.") as (openai, session):
        await ask(openai, tools=TOOLS, tool_choice="required")
    assert session.trajectory.info["gateway"]["unenforced_tool_choices"] == 1


async def test_a_conversation_that_is_too_long_is_named(play: Callable[..., Any]) -> None:
    async with play("One.") as (openai, session):
        first = (await ask(openai)).choices[0].message
        with pytest.raises(BadRequestError) as error:
            await ask(openai, USER, first.model_dump(exclude_none=True), {"role": "user", "content": "x " * 2_000})
        assert error.value.code == "context_length_exceeded"
    assert session.trajectory.stop_reason is StopReason.MAX_TOKENS
    assert session.error is None


async def test_max_tokens_and_the_limit_of_turns(play: Callable[..., Any]) -> None:
    async with play("One two three.", max_turns=1) as (openai, session):
        assert (await ask(openai, max_tokens=1)).choices[0].finish_reason == "length"
        with pytest.raises(BadRequestError, match="at most 1 turns"):
            await ask(openai)
    assert session.trajectory.stop_reason is StopReason.MAX_TURNS


async def test_a_key_opens_its_own_open_session(play: Callable[..., Any]) -> None:
    async with play() as (openai, session):
        with pytest.raises(AuthenticationError):
            await ask(openai.with_options(api_key="another"))
    with pytest.raises(RequestError, match="is over"):
        session.reply(TurnRequest([USER]), "key", is_retry=False)


async def test_a_stream_is_kept_alive_while_the_engine_waits(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_rl.agents.sessions.server.KEEP_ALIVE_S", 0.02)
    lines: list[str] = []

    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "Late."

    async with serve(slow) as (url, session):
        body = {"model": "policy", "messages": [USER], "stream": True}
        async with (
            httpx.AsyncClient(headers={"Authorization": f"Bearer {session.id}"}) as http,
            http.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
        ):
            lines.extend([line async for line in answer.aiter_lines() if line])
    assert session.trajectory.answer == "Late."
    comments = lines.count(": generating")
    assert comments > 2
    assert lines[:comments] == [": generating"] * comments
    assert "Late." in "".join(lines[comments:])


@pytest.mark.parametrize(
    ("place", "stream"),
    [
        ("session.read_turn", False),
        ("session.message_key", False),
        ("server._retry", False),
        ("chat._head", False),
        ("chat._head", True),
    ],
)
async def test_a_fault_of_ours_leaves_the_session_unscored(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, place: str, stream: bool
) -> None:
    """The client gets an error, and the conversation is free again."""
    module, name = place.split(".", 1)

    def broken(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise KeyError("ours")

    async with serve("One.") as (url, session):
        monkeypatch.setattr(f"agent_rl.agents.sessions.{module}.{name}", broken)
        body = {"model": "policy", "messages": [USER], "stream": stream}
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {session.id}"}) as http:
            answer = await http.post(f"{url}/v1/chat/completions", json=body)
    assert repr(session.error) == "KeyError('ours')"
    assert answer.status_code == (200 if stream else 503)
    assert "ours" in answer.text
    assert not any(conversation.is_busy for conversation in session._conversations)


async def test_a_body_that_cannot_be_read_is_the_clients(serve: Callable[..., Any]) -> None:
    statuses = []

    async with serve() as (url, session):
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {session.id}"}) as http:
            for path in ("chat/completions", "messages/count_tokens"):
                for body in ("[" * 200_000, '{"messages": [{"role": 5, "content": 5}], "tool_choice": "any"}'):
                    statuses.append((await http.post(f"{url}/v1/{path}", content=body)).status_code)
            empty = await http.post(f"{url}/v1/messages/count_tokens", json={"messages": []})
            statuses.append(empty.status_code)
    assert session.error is None
    assert statuses == [400] * 5
