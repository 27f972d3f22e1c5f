"""The format of an agent that talks with a user: what is a message and what an action."""

import pytest

from agent_rl.agents.react import NO_ACTION
from agent_rl.agents.user_sim import NO_MESSAGE, UserSimFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import ToolCall

TOOLS = [ToolSpec.from_class(Calculator)]
ACT = 'Action: calculator\nAction Input: {"expression": "6*7"}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Thought: x\nMessage: Which one?", "Which one?"),
        ("Message:\nWhich one?\n\nThis or that?\n", "Which one?\n\nThis or that?"),
        (" message : größer 日本", "größer 日本"),
        ("Which one?", "Which one?"),
        ("Your order: 17 pears.\n", "Your order: 17 pears."),
        ("Message: Wait.\n" + ACT, "Wait.\n" + ACT),
        ("Message: My Thought: none", "My Thought: none"),
    ],
)
def test_message_is_read(text, message):
    step = UserSimFormat().parse(text, TOOLS)
    assert (step.answer, step.calls) == (message, [])


@pytest.mark.parametrize("text", [ACT, "Thought: x\n" + ACT, ACT + "\nMessage: wait", "Let me see.\n" + ACT])
def test_action_is_read(text):
    assert UserSimFormat().parse(text, TOOLS).calls == [ToolCall("calculator", {"expression": "6*7"})]


MALFORMED = {**dict.fromkeys(["", " \n", "Thought: x", "Message:", "Observation: 42"], NO_MESSAGE),
             "Action: calculator": NO_ACTION}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), MALFORMED.items())
def test_other_turns_are_malformed(text, told):
    with pytest.raises(MalformedActionError) as caught:
        UserSimFormat().parse(text, TOOLS)
    assert str(caught.value) == told


def test_instructions_name_the_tools():
    (system, user) = UserSimFormat().prompt([{"role": "user", "content": "Hi."}], TOOLS)
    assert "Message: what you say to the user" in system["content"]
    assert "calculator: Evaluate" in system["content"]
    assert user["content"] == "Hi."
