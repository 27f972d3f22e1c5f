"""Tools and calls with a chat template that has no place for them."""

from typing import Any

import pytest

from agent_rl.agents.policies.chat_template import USER, ChatTemplate
from agent_rl.agents.policies.shown_tools import call_text
from agent_rl.agents.policies.turn_writer import TurnWriter
from agent_rl.trajectory import ToolCall
from tests.agents.policies.test_chat_template import ALTERNATING, SYSTEM, of

pytestmark = pytest.mark.trainer


def test_a_template_that_shows_no_tools_has_them_in_a_message(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, tool = of(tokenizer, ALTERNATING, monkeypatch), {"type": "function", "function": {"name": "look"}}
    assert (chat.names_tools, chat.syntax) == (False, "hermes")
    said = chat.decode(chat.prompt_ids([SYSTEM, USER], [tool]))
    assert said.count('{"type": "function", "function": {"name": "look"}}') == 1
    assert said.endswith("</tool_call>\n\nBe brief.\n\nHello.<|im_end|>\n<|im_start|>assistant\n")
    results = [{"role": "tool", "content": "5"}, {"role": "tool", "content": [{"type": "text", "text": "6"}]}]
    first, second = chat.fitted(results[:1])[0], chat.fitted(results[1:])[0]
    assert first == {"role": "user", "content": "<tool_response>\n5\n</tool_response>"}
    assert [part["text"] for part in second["content"]] == ["<tool_response>\n", "6", "\n</tool_response>"]
    assert chat.decode(chat.following(results[:1], [tool]).rest).startswith("<|im_start|>user\n<tool_response>\n5")
    monkeypatch.setattr(
        tokenizer, "chat_template", ALTERNATING.replace("raise_exception('roles must alternate')", "''")
    )
    plain = ChatTemplate(tokenizer)
    assert "\n</tool_call><|im_end|>\n<|im_start|>user" in plain.text([USER], [tool], prompt=True)
    assert "Be brief.\n\n# Tools" in plain.text([SYSTEM, USER], [tool], prompt=True)
    call = ToolCall("look", {"at": 1})
    assert TurnWriter(plain).calls([call]) == call_text([call])
    assert call_text([call]) == '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'
