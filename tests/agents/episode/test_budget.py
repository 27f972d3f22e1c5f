"""Budgets: the final turn is announced once, whatever budget is nearly spent; repeated turns are counted."""

import json
import time
from typing import ClassVar

import pytest

from agent_rl.agents.episode.budget import EpisodeLimits, FinalTurn, Repeats, make_budget
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.errors import ConfigError
from agent_rl.rewards.user_function import scorer_info
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import Tool, ToolOutput, ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.tools.builtin.submit_answer import SubmitAnswer
from agent_rl.trajectory import StopReason, ToolCall, ToolStatus
from tests.agents.episodes import ANSWER, act, probe, run

TOLD = "Now."
FINAL = FinalTurn(TOLD)
SUBMIT = 'Action: submit_answer\nAction Input: {"answer": "42"}'


KEPT, WORDY = (FinalTurn(text, reserve_tokens=10) for text in (TOLD, "many words " * 10))
LONG = "word " * 50
ENDS = {
    "no final turn": ([act(), ANSWER], {"max_turns": 2, "final": None}, "answered", "Observation: 42"),
    "a correction before the last turn": (["hm", ANSWER], {"max_turns": 2}, "answered", TOLD),
    "the only turn": ([act()], {"max_turns": 1}, "max_turns", None),
    "too many calls in the last turn": ([act(), act()], {"max_turns": 2, "max_tool_calls": 1}, "max_turns", TOLD),
    "a final turn that is cut": ([LONG, LONG], {"max_tokens": 30, "final": KEPT}, "max_tokens", TOLD),
    "a correction that does not fit": (["hm", ANSWER], {"max_tokens": 15, "final": KEPT}, "answered", TOLD),
    "an announcement that does not fit": ([LONG, ANSWER], {"max_tokens": 30, "final": WORDY}, "max_tokens", None),
    "no tokens kept": ([LONG, ANSWER], {"max_tokens": 10}, "max_tokens", None),
}


@pytest.mark.parametrize(("texts", "budget", "reason", "told"), ENDS.values(), ids=ENDS)
def test_how_it_ends(texts, budget, reason, told):
    budget = {"final": FINAL, **budget}
    policy = ScriptedPolicy(texts, max_tokens=budget.pop("max_tokens", None))
    trajectory = run(policy, **budget)
    assert trajectory.stop_reason.value == reason
    assert (trajectory.turns[0].observation or "None").endswith(str(told))
    assert len(trajectory.turns) == (1 if told is None else 2)


@pytest.mark.parametrize(
    ("budget", "spent"),
    [({"max_turns": 2}, StopReason.MAX_TURNS), ({"max_tool_calls": 1}, StopReason.MAX_TOOL_CALLS)],
)
@pytest.mark.parametrize(
    ("last", "answered"), [(ANSWER, True), (act("1+1"), False), ("hm", False), (act("1", "nothing"), False)]
)
def test_last_turn_is_announced_and_answers_or_ends_by_that_budget(budget, spent, last, answered):
    policy = ScriptedPolicy([act(), last, ANSWER])
    trajectory = run(policy, final=FINAL, **budget)
    assert trajectory.stop_reason is (StopReason.ANSWERED if answered else spent)
    assert trajectory.answer == ("42" if answered else None)
    assert [turn.observation for turn in trajectory.turns] == [f"Observation: 42\n\n{TOLD}", None]
    assert policy.messages[-2]["content"] == f"Observation: 42\n\n{TOLD}"
    assert trajectory.turns[1].results == []


def test_calls_beyond_the_budget_are_not_run_but_answered():
    spec, life = probe()
    trajectory = run([act("x", "probe"), ANSWER], spec, max_tool_calls=0, final=FINAL)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [result.status for result in trajectory.results] == [ToolStatus.SKIPPED]
    assert trajectory.turns[0].observation == f"Observation: Skipped: the number of tool calls is spent.\n\n{TOLD}"
    assert life == []


@pytest.mark.parametrize(
    "budget", [{"max_turns": 2}, {"max_tool_calls": 1}, {"max_tool_calls": 0}, {"max_turns": 2, "final": None}]
)
def test_answer_may_be_handed_in_by_a_tool_in_the_last_turn_and_does_not_count(budget):
    specs = [ToolSpec.from_class(Calculator), ToolSpec.from_class(SubmitAnswer)]
    trajectory = run([act(), SUBMIT], *specs, **{"final": FINAL, **budget})
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")


@pytest.mark.parametrize("final", [None, FINAL])
def test_other_calls_of_a_last_turn_are_named_as_skipped_in_their_order(final):
    """What a reward reads as executed is what was executed."""
    names = ("probe", "submit_answer", "probe")
    calls = [{"name": name, "arguments": {"expression" if name == "probe" else "answer": "42"}} for name in names]
    both = "".join(f"<tool_call>{json.dumps(each)}</tool_call>" for each in calls)
    spec, life = probe()
    specs = [spec, ToolSpec.from_class(SubmitAnswer)]
    trajectory = run([both], *specs, form=ToolCallFormat(), final=final, max_turns=1)
    (turn,) = trajectory.turns
    assert [(result.name, result.status.value) for result in turn.results] == [
        ("probe", "skipped"),
        ("submit_answer", "ok"),
        ("probe", "skipped"),
    ]
    assert [result.call_id for result in turn.results] == [call.id for call in turn.calls]
    assert turn.results[0].text == "Skipped: the number of turns is spent."
    assert (trajectory.stop_reason, trajectory.answer, life) == (StopReason.ANSWERED, "42", [])
    trajectory.agent = "tool_call_agent"
    assert [call["name"] for call in scorer_info(trajectory)["executed_calls"]] == ["submit_answer"]


def test_answer_that_cannot_be_handed_in_ends_the_episode():
    wrong = "Action: submit_answer\nAction Input: {}"
    trajectory = run([wrong], ToolSpec.from_class(SubmitAnswer), max_turns=1)
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert trajectory.results[0].status is ToolStatus.INVALID_ARGUMENTS


# Tokens


def words(*texts):
    return sum(len(text.split(" ")) for text in texts)


def test_turn_is_cut_before_what_is_kept_and_the_final_turn_has_it():
    long = "Thought: " + "word " * 50
    policy = ScriptedPolicy([long, ANSWER], max_tokens=30)
    trajectory = run(policy, final=FinalTurn(TOLD, reserve_tokens=10))
    assert [turn.tokens for turn in trajectory.turns] == [20, words(ANSWER)]
    assert trajectory.turns[0].observation == TOLD
    assert policy.messages[-2] == {"role": "user", "content": TOLD}
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert policy.response_tokens <= 30


def test_observation_that_does_not_fit_is_left_out():
    policy = ScriptedPolicy([act(), ANSWER], max_tokens=words(act()) + 22)
    trajectory = run(policy, final=FinalTurn(TOLD, reserve_tokens=20))
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.results[0].text == "42"
    assert trajectory.turns[0].observation.startswith("Observation: (not shown")
    assert trajectory.turns[0].observation.endswith(TOLD)


def test_images_that_do_not_fit_are_left_out():
    class Draw(Tool):
        name, description = "draw", "Draw."
        parameters: ClassVar = {"type": "object", "properties": {}}

        async def call(self, arguments):
            return ToolOutput("a chart " * 9, images=["pixels"])

    call = "Action: draw\nAction Input: {}"
    policy = ScriptedPolicy([call, ANSWER], max_tokens=words(call) + 22)
    trajectory = run(policy, ToolSpec.from_class(Draw), final=FinalTurn(TOLD, reserve_tokens=20))
    assert policy.messages[-2]["content"] == trajectory.turns[0].observation
    assert trajectory.results[0].images == ["pixels"]


# Seconds


@pytest.mark.parametrize(("last", "reason"), [(ANSWER, StopReason.ANSWERED), (act(), StopReason.MAX_SECONDS)])
def test_tool_that_hangs_is_stopped_in_time_for_the_final_turn(last, reason):
    spec, life = probe()
    final = FinalTurn(TOLD, reserve_seconds=9.9)
    trajectory = run([act("hang", "probe"), last], spec, max_seconds=10.0, final=final)
    assert trajectory.stop_reason is reason
    assert trajectory.turns[0].observation == f"Observation: Skipped: the time is up.\n\n{TOLD}"
    assert life == ["start", "stopped", "close"]


def test_late_result_is_shown_with_the_announcement():
    class Slow(Calculator):
        async def call(self, arguments):
            time.sleep(0.25)  # noqa: ASYNC251 - holds up the event loop, so that no timer can fire
            return "42"

    final = FinalTurn(TOLD, reserve_seconds=29.8)
    trajectory = run([act(), ANSWER], ToolSpec.from_class(Slow), max_seconds=30.0, final=final)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.turns[0].observation == f"Observation: 42\n\n{TOLD}"


# Repetition


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_turns_that_only_repeat_are_repetition(limit):
    spec, life = probe()
    trajectory = run([act("x", "probe")] * 9, spec, max_repeats=limit)
    assert trajectory.stop_reason is StopReason.REPETITION
    assert len(trajectory.turns) == limit + 1
    assert trajectory.repeated_calls == limit
    assert life == ["start", "close"]


def test_repetition_gets_a_final_turn_too():
    trajectory = run([act(), act(), ANSWER], max_repeats=1, final=FINAL)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.turns[1].observation == f"Observation: Skipped: you have asked for this before.\n\n{TOLD}"
    assert run([act(), act(), act()], max_repeats=1, final=FINAL).stop_reason is StopReason.REPETITION


@pytest.mark.parametrize(("flags", "reuse"), [(("reusable",), True), (("reusable",), False), (("idempotent",), True)])
def test_repeated_call_is_answered_from_memory_only_where_that_is_safe(flags, reuse):
    """A call that may be sent twice is another matter: what it reads may have changed since."""
    texts = [act(each, "probe") for each in ("1", "2", "1", "refuse", "refuse", "3")]
    trajectory = run([*texts, ANSWER], probe(**dict.fromkeys(flags, True))[0], reuse=reuse)
    kept = "reusable" in flags and reuse
    error = "Error: no"  # a failed call is made again
    assert [result.text for result in trajectory.results] == (
        ["1", "2", "1", error, error, "5"] if kept else ["1", "2", "3", error, error, "6"]
    )
    assert sum(result.metrics.get("cached", False) for result in trajectory.results) == (1 if kept else 0)
    assert trajectory.repeated_calls == 2


def test_a_budget_is_verls_turns_and_our_section():
    section = {"budget": {"max_tool_calls": 3, "max_seconds": 9}}
    section["final_turn"] = {"enabled": True, "reserve_tokens": 7}
    given = AgentRLSettings.from_config({"agent_rl": section})
    budget = make_budget(given, EpisodeLimits(response_length=64))
    assert (budget.max_turns, budget.max_tool_calls, budget.max_seconds) == (16, 3, 9)
    assert budget.final.reserve_tokens == 7
    assert make_budget(AgentRLSettings(), EpisodeLimits(max_assistant_turns=4)).max_turns == 4
    with pytest.raises(ConfigError, match=r"agent_rl.final_turn.reserve_tokens: 7 is not less than"):
        make_budget(given, EpisodeLimits(response_length=7))


A, B, C = ("t", {"x": 1, "y": 2}), ("t", {"x": 2}), ("u", {"x": 2})


@pytest.mark.parametrize(
    ("turns", "counts"),
    [
        ([[A], [B], [A], [B], [A]], [0, 0, 1, 2, 3]),
        ([[A], [A], [B], [A], [A, C]], [0, 1, 0, 1, 0]),  # something new starts the count again
        ([[A], [("t", {"y": 2, "x": 1})]], [0, 1]),
        ([[B], [C], [("t", {"x": "2"})]], [0, 0, 0]),  # another name, and another value
        ([[A, A]], [0]),
    ],
)
def test_turns_in_a_row_that_only_repeat_earlier_calls_are_counted(turns, counts):
    repeats, found = Repeats(), []
    for turn in turns:
        repeats.add([ToolCall(name, arguments) for name, arguments in turn])
        found.append(repeats.in_a_row)
    assert found == counts
