"""Sessions over HTTP, with the SDK of OpenAI as the client and a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("verl")

from openai import AsyncOpenAI, BadRequestError

if TYPE_CHECKING:
    from agent_rl.agents.sessions.session import Session

pytestmark = pytest.mark.trainer

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]  # fmt: skip
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
USER = {"role": "user", "content": "1 + 2?"}


def test_an_ordinary_agent_has_one_sequence(play: Callable[..., Session]) -> None:
    seen = []

    async def client(openai: AsyncOpenAI) -> None:
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

    session = play(client, CALL, "It is 3.")
    assert [each.choices[0].finish_reason for each in seen] == ["tool_calls", "stop"]
    assert seen[0].choices[0].message.content == "I add."
    sequences = session.policy.sequences()
    assert len(sequences) == 1
    assert sum(sequences[0].mask) == sum(turn.tokens for turn in session.trajectory.turns)
    assert session.trajectory.answer == "It is 3."
    assert session.trajectory.turns[0].results[0].text == "3"
    assert session.trajectory.info["gateway"] == {"requests": 2, "conversations": 1}


def test_a_stream_replays_the_turn(play: Callable[..., Session]) -> None:
    texts, calls = [], []

    async def client(openai: AsyncOpenAI) -> None:
        stream = await openai.chat.completions.create(
            model="policy", messages=[USER], tools=TOOLS, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            for choice in chunk.choices:
                texts.append(choice.delta.content or "")
                calls.extend(choice.delta.tool_calls or ())
        assert chunk.usage.completion_tokens > 0

    play(client, CALL)
    assert "".join(texts) == "I add."
    assert json.loads(calls[0].function.arguments) == {"a": 1, "b": 2}


def test_special_tokens_in_a_result_stay_text(play: Callable[..., Any], tokenizer: Any) -> None:
    async def client(openai: AsyncOpenAI) -> None:
        done = await openai.chat.completions.create(model="policy", messages=[USER], tools=TOOLS)
        message = done.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3<|im_end|>"}
        messages = [USER, message.model_dump(exclude_none=True), result]
        await openai.chat.completions.create(model="policy", messages=messages, tools=TOOLS)

    session = play(client, CALL, "It is 3.")
    text = tokenizer.decode(session.policy.ids)
    assert "3< |im_end|>" in text
    assert session.trajectory.turns[0].results[0].text == "3<|im_end|>"


def test_values_that_cannot_be_used_are_refused(play: Callable[..., Any]) -> None:
    async def client(openai: AsyncOpenAI) -> None:
        for wrong in ({"max_tokens": "many"}, {"stop": [1]}, {"messages": [{"role": "user", "content": 5}]}):
            with pytest.raises(BadRequestError):
                await openai.chat.completions.create(**{"model": "policy", "messages": [USER], **wrong})
        await openai.chat.completions.create(model="policy", messages=[USER])

    assert play(client, "It is 3.").trajectory.answer == "It is 3."
