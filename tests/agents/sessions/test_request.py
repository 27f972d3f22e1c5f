"""Which messages of a client are the same turn."""

from __future__ import annotations

from typing import Any

import pytest

from agent_rl.agents.episode.format import thoughts_of
from agent_rl.agents.episode.policy import ScriptedPolicy, first_stop
from agent_rl.agents.sessions.request import message_key, text_of

FLOATS = {"b": [2.0, {"c": 0.5}], "a": 1.0}
ADD = {"function": {"name": "add", "arguments": {"a": 1, "b": [2, {"c": 0.5}]}}}
TURN = {"role": "assistant", "content": "I add.", "tool_calls": [ADD]}
LISTED = "[{'id': 'x', 'type': 'function', 'function': {'name': %r, 'arguments': %r}}]"


@pytest.mark.parametrize(
    "message",
    [
        {"content": " I add.\n", "tool_calls": [{"id": "other", "type": "function", **ADD}]},
        {"content": "<think>\nHm.\n</think>\n\nI add.", "tool_calls": [ADD]},
        {"content": "I add.", "tool_calls": [{"function": {"name": "add", "arguments": FLOATS}}]},
        {"content": "I add.\nCalling tools:\n" + LISTED % ("add", ADD["function"]["arguments"])},
    ],
)  # fmt: skip
def test_one_turn_has_one_key(message: dict[str, Any]) -> None:
    assert message_key({"role": "assistant", **message}) == message_key(TURN)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "I add."},
        {"role": "assistant", "content": "I add.", "tool_calls": [ADD, ADD]},
        {"role": "user", "content": "I add.\nCalling tools:\n" + LISTED % ("add", ADD["function"]["arguments"])},
        {"role": "assistant", "content": "I add.\nCalling tools:\n[add]"},
        {"role": "assistant", "content": "I add.\nCalling tools:\n[1]"},
        {"role": "assistant", "content": "I add.", "tool_calls": [{"function": {"name": "add", "arguments": {}}}]},
    ],
)  # fmt: skip
def test_other_messages_have_other_keys(message: dict[str, Any]) -> None:
    assert message_key(message) != message_key(TURN)


def test_code_that_smolagents_completes_and_repeats_is_one_turn() -> None:
    sampled = {"role": "assistant", "content": "I add.\n<code>\n1 + 2\n"}
    sent = "I add.\n<code>\n1 + 2\n</code>\nCalling tools:\n" + LISTED % ("python_interpreter", "1 + 2")
    stop = ["Observation:", "</code>"]
    assert message_key({"role": "assistant", "content": sent}, stop) == message_key(sampled, stop)
    assert message_key({"role": "user", "content": "1</code>"}, stop) != message_key({"role": "user", "content": "1"})


@pytest.mark.parametrize(
    ("text", "thoughts"),
    [
        ("An answer.", ""),
        ("<think>\nHm.\n</think>\n\nAn answer.", "Hm."),
        ("Hm.\n</think>An answer.", "Hm."),
        ("[THINK]Hm.[/THINK]An answer.<think>Ah.</think>", "Hm.\nAh."),
        ("<think>Hm.", ""),
    ],
)
def test_thoughts(text: str, thoughts: str) -> None:
    assert thoughts_of(text) == thoughts


@pytest.mark.parametrize("content", ["\ud83d caf\u00e9", [{"type": "text", "text": "\ud83d caf\u00e9"}]])
def test_half_an_emoji_is_a_question_mark(content: Any) -> None:
    assert text_of(content) == "? caf\u00e9", "tokenizers reject lone surrogates"


def test_the_first_stop_string_ends_a_turn() -> None:
    assert first_stop("one two", ["two", "one"]) == "one"
    assert first_stop("one two", ["three"]) is None


def test_tokens_are_estimated_without_a_tokenizer() -> None:
    messages = [{"role": "user", "content": "1 + 2?"}]
    assert 0 < ScriptedPolicy([]).count_tokens(messages, []) < ScriptedPolicy([]).count_tokens(messages, [ADD])
