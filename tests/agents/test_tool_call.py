"""Native calls as a format: what is shown, what is read, and how broken calls are answered."""

import pytest

from agent_rl.agents.episode.budget import FinalTurn
from agent_rl.agents.episode.format import Step
from agent_rl.agents.episode.policy import Generation, ScriptedPolicy
from agent_rl.agents.tool_call import FORMAT_KEY, ToolCallFormat
from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, ToolCall, ToolResult
from tests.agents.episodes import PROMPT, probe, run

CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'


def play(*texts, specs=(), **options):
    policy = ScriptedPolicy(texts)
    return run(policy, *specs, form=ToolCallFormat(), **options), policy


def test_call_is_answered_by_a_tool_message_and_text_is_the_answer():
    trajectory, policy = play(f"Let me see.\n{CALL}", "It is 42.\n")
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "It is 42.")
    assert policy.messages == [
        *PROMPT,
        {"role": "assistant", "content": f"Let me see.\n{CALL}"},
        {"role": "tool", "name": "calculator", "content": "42"},
        {"role": "assistant", "content": "It is 42.\n"},
    ]
    assert trajectory.turns[0].observation == "42"


def test_call_ids_are_given_back():
    (message,) = ToolCallFormat("kimi").reply("42", [ToolResult("functions.calculator:0", "calculator", "42")])
    assert message == {
        "role": "tool",
        "name": "calculator",
        "content": "42",
        "tool_call_id": "functions.calculator:0",
    }


def test_broken_call_is_corrected_and_counted_and_none_of_its_turn_is_run():
    spec, life = probe()
    good = '<tool_call>{"name": "probe", "arguments": {"expression": "x"}}</tool_call>'
    trajectory, policy = play(good + "<tool_call>{</tool_call>", "42", specs=[spec])
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.malformed_turns == 1
    assert life == []
    assert policy.messages[2]["role"] == "user"
    assert policy.messages[2]["content"].startswith("Error: I could not read the tool call: it is not valid JSON")


def test_empty_turn_is_an_empty_answer():
    trajectory, _ = play("")
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "")


def test_final_turn_is_announced_in_the_tool_message():
    trajectory, policy = play(CALL, CALL, max_turns=2, final=FinalTurn("Now."))
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert policy.messages[2] == {"role": "tool", "name": "calculator", "content": "42\n\nNow."}


@pytest.mark.parametrize(
    ("generated", "step"),
    [
        (Generation("", 1, calls=[ToolCall("a", {"x": 1}, "7")]), Step([ToolCall("a", {"x": 1}, "7")])),
        (Generation(CALL, 1, calls=[]), Step(answer=CALL)),
        (Generation("<think>a</think> b ", 1, calls=[]), Step(answer="b")),
    ],
)
def test_calls_read_by_the_endpoint_are_used(generated, step):
    assert ToolCallFormat().read(generated, []) == step


def test_unknown_syntax_suggests_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'qwen3_coder'") as caught:
        ToolCallFormat("qwen3-coder")
    assert caught.value.key == FORMAT_KEY
