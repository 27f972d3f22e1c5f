"""All formats read a turn without its thoughts and append the announcement of the final turn to the last message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_rl.agents.code_act import CodeActFormat
from agent_rl.agents.episode.format import with_instructions
from agent_rl.agents.episode.policy import Generation
from agent_rl.agents.plan_act import PlanActFormat
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.search import SearchFormat
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.tools.builtin.python import Python
from agent_rl.tools.builtin.search import Search
from agent_rl.trajectory import StopReason, Trajectory, Turn


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


PIECES = st.sampled_from(
    [
        *("Plan:", "Step: 1", "Thought:", "Action:", "Action Input:", "Message:", "Observation:", "Final Answer:"),
        *("<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<information>"),
        *("```python", "```", "```output", "\\boxed{", "{", "}", '{"expression": "6*7"}', "calculator", "python"),
        *("\n", "\r\n", " ", "1.", "x", "größer 日本", "\x00", "\ud800"),
    ]
)
TURNS = st.one_of(st.lists(PIECES, max_size=16).map("".join), st.text(max_size=60))
TOOLS = [ToolSpec.from_class(Calculator), ToolSpec.from_class(Python), ToolSpec.from_class(Search)]
FORMATS = [
    ReactFormat(),
    PlanActFormat(),
    SearchFormat(),
    CodeActFormat(),
    CodeActFormat(answer="text"),
    UserSimFormat(),
]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: type(form).__name__)
@given(texts=st.lists(TURNS, min_size=1, max_size=4))
def test_any_turn_is_read_or_refused(form, texts):
    form = form.fresh()
    for text in texts:
        try:
            step = form.read(Generation(text, 1), TOOLS)
        except MalformedActionError:
            continue
        assert bool(step.calls) is (step.answer is None)
        assert all(call.name and isinstance(call.arguments, dict) for call in step.calls)
        turn = Turn(text="", calls=step.calls, notes=step.notes)
        assert Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=[turn]).to_dict()


ROW = [{"role": "user", "content": "q"}]


def test_instructions_begin_the_prompt_or_follow_its_system_message():
    assert with_instructions(ROW, "") == ROW
    assert with_instructions(ROW, "Do.") == [{"role": "system", "content": "Do."}, *ROW]
    system = {"role": "system", "content": "Be."}
    assert with_instructions([system, *ROW], "Do.") == [{"role": "system", "content": "Be.\n\nDo."}, *ROW]
    assert system["content"] == "Be.", "the row's message is shared by its samples"
    be, gap, do = ({"type": "text", "text": text} for text in ("Be.", "\n\n", "Do."))
    system["content"] = [be]  # in a row with images, every message has parts
    assert with_instructions([system, *ROW], "Do.") == [{"role": "system", "content": [be, gap, do]}, *ROW]
