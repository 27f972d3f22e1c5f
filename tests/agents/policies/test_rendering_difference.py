"""Names of differences between renderings."""

from typing import Any

import pytest

from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.policies.rendering_difference import IN_ORDER, IN_THOUGHTS, IN_WHITE_SPACE, difference

pytestmark = pytest.mark.trainer


def test_differences_of_renderings_have_a_name(tokenizer: Any) -> None:
    chat = ChatTemplate(tokenizer)
    assert difference(chat, "a b", "a\n\nb c") == IN_WHITE_SPACE
    assert difference(chat, "a <think>why</think> b", "a b c") == IN_THOUGHTS
    assert difference(chat, "system a b", "a system b c") == IN_ORDER
    assert difference(chat, "a b", "a c") == ""
