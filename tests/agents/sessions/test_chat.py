"""Chat completions: a stream says what the answer says, and requests are read alike in each form that clients send."""

import json
from typing import Any

import pytest

from agent_rl.agents.sessions.chat import chat_answer, chat_events, chat_request
from agent_rl.agents.sessions.request import RequestError, TurnReply
from agent_rl.trajectory import ToolCall

USER = {"role": "user", "content": "1 + 2?"}
REPLY = TurnReply("I add.", "One and two.", [ToolCall("add", {"a": 1}, id="call_1")], "tool_calls", 7, 5)


def test_a_stream_says_what_the_answer_says() -> None:
    body = {"model": "policy", "stream_options": {"include_usage": True}}
    answer = chat_answer(REPLY, body)
    *chunks, end = [event.removeprefix("data: ").strip() for event in chat_events(REPLY, body)]
    *parts, usage = map(json.loads, chunks)
    joined: dict[str, Any] = {}
    for part in parts:
        for name, value in part["choices"][0]["delta"].items():
            joined[name] = joined.get(name, type(value)()) + value if name != "role" else value
    calls = [{name: value for name, value in call.items() if name != "index"} for call in joined.pop("tool_calls")]
    assert {**joined, "tool_calls": calls} == answer["choices"][0]["message"]
    assert (end, usage["usage"], parts[-1]["choices"][0]["finish_reason"]) == ("[DONE]", answer["usage"], "tool_calls")


def test_forms_of_a_request_are_read_alike() -> None:
    plain = chat_request({"messages": [USER], "max_tokens": 9, "stop": "x"})
    blocks = {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]}
    assert chat_request({"messages": [blocks], "max_completion_tokens": 9, "stop": ["x"]}) == plain
    assert chat_request({"messages": [USER], "tool_choice": "required"}).forced
    assert chat_request({"messages": [USER], "tool_choice": "none"}).tools == []


def test_what_the_run_decides_is_named() -> None:
    set_by_client = {"temperature": 0.0, "top_p": 1.0, "logit_bias": {"5": 1}, "min_p": 0.1}
    assert chat_request({"messages": [USER], "top_k": None, **set_by_client}).sampling == set_by_client
    with pytest.raises(RequestError, match="'owner', not one of"):
        chat_request({"messages": [{"role": "owner", "content": "x"}]})
