"""What all formats share: a turn is read without its thoughts, and the last word stands at the end of what is shown."""

import pytest

from agent_rl.loops.format import Step
from agent_rl.loops.policy import Generation
from agent_rl.loops.react import ReactFormat


def test_turn_is_read_without_its_thoughts():
    generated = Generation("<think>Final Answer: 1</think>Final Answer: 2", 9)
    assert ReactFormat().read(generated, []) == Step(answer="2")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], [{"role": "user", "content": "Now."}]),
        ([{"role": "tool", "content": "42"}], [{"role": "tool", "content": "42\n\nNow."}]),
        (
            [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2", "tool_call_id": "b"}],
            [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2\n\nNow.", "tool_call_id": "b"}],
        ),
        (
            [{"role": "tool", "content": [{"type": "image"}]}],
            [{"role": "tool", "content": [{"type": "image"}, {"type": "text", "text": "Now."}]}],
        ),
    ],
)
def test_last_word_ends_the_last_message(messages, told):
    before = [dict(message) for message in messages]
    assert ReactFormat().last_word(messages, "Now.") == told
    assert messages == before
