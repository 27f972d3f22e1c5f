from agent_rl.rewards.lab.editing import answered, with_answer, with_thought, with_turns
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, Trajectory, Turn
from tests.rewards.lab.episodes import problems, trajectories


def test_another_answer_is_in_text_and_answer_and_the_original_is_left_alone():
    original = trajectories(problems(1))[0]
    before = original.to_json()
    changed = with_answer(original, "a much longer answer: 5")
    assert changed.answer == "a much longer answer: 5"
    assert changed.turns[-1].text == "Thought: I know.\nFinal Answer: a much longer answer: 5"
    assert changed.turns[:-1] == original.turns[:-1]
    assert changed.turns[-1].tokens > original.turns[-1].tokens
    grown = changed.turns[-1].tokens - original.turns[-1].tokens
    assert changed.response_tokens == original.response_tokens + grown
    assert original.to_json() == before
    assert with_answer(changed, original.answer).turns[-1].text == original.turns[-1].text


def test_a_shorter_answer_has_fewer_tokens_but_never_less_than_none():
    long = with_answer(trajectories(problems(1))[0], "7 " * 500)
    short = with_answer(long, "")
    assert 0 <= short.turns[-1].tokens < long.turns[-1].tokens
    assert 0 <= short.response_tokens < long.response_tokens


def test_an_answer_that_a_tool_took_is_changed_in_the_call():
    call, result = ToolCall("submit_answer", {"answer": "41"}, "1"), ToolResult("1", "submit_answer", "ok", answer="41")
    turn = Turn('<tool_call>{"answer": "41"}</tool_call>', 9, [call], [result])
    changed = with_answer(Trajectory([], StopReason.ANSWERED, [turn], answer="41"), "42")
    assert changed.turns[0].text == '<tool_call>{"answer": "42"}</tool_call>'
    assert changed.turns[0].calls[0].arguments == {"answer": "42"}
    assert changed.turns[0].results[0].answer == "42"
    assert (call.arguments, result.answer) == ({"answer": "41"}, "41")


def test_thoughts_change_no_answer():
    original = trajectories(problems(1))[0]
    changed = with_thought(original, "#### 1")
    assert changed.turns[-1].text == f"#### 1\n{original.turns[-1].text}"
    assert changed.answer == original.answer
    assert changed.response_tokens > original.response_tokens


def test_more_turns_take_more_tokens_and_seconds():
    original = trajectories(problems(1))[0]
    changed = with_turns(original, [original.turns[0], *original.turns])
    assert len(changed.turns) == len(original.turns) + 1
    assert changed.tool_calls == original.tool_calls + 1
    assert changed.response_tokens > original.response_tokens
    assert changed.seconds >= original.seconds


def test_answered_needs_the_stop_reason_and_a_turn():
    assert answered(Trajectory([], StopReason.ANSWERED, [Turn("")], answer=""))
    assert not answered(Trajectory([], StopReason.MAX_TURNS, [Turn("")]))
    assert not answered(Trajectory([], StopReason.ANSWERED, answer="x"))
