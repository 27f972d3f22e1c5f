"""Episodes with a scripted policy, the ReAct format and real tools: how they end and what they leave behind."""

import asyncio
import contextlib
import time

import pytest

from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.react import NO_ACTION, ReactFormat, invalid_json
from agent_rl.errors import EngineError, FatalError, UnscoredError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory
from tests.agents import episodes
from tests.agents.episodes import ANSWER, PROMPT, Waiting, act, episode, probe, run

# How an episode ends


def test_trajectory_describes_the_whole_episode():
    policy = ScriptedPolicy([act(), ANSWER])
    trajectory = run(policy)
    assert [message.role for message in trajectory.prompt] == ["system", "user"]
    assert trajectory.prompt[1].content == PROMPT[0]["content"]
    assert [turn.text for turn in trajectory.turns] == [act(), ANSWER]
    assert [turn.observation for turn in trajectory.turns] == ["Observation: 42", None]
    assert [(result.text, result.status) for result in trajectory.results] == [("42", ToolStatus.OK)]
    assert trajectory.error is None
    assert [turn.tokens for turn in trajectory.turns] == [len(act().split(" ")), len(ANSWER.split(" "))]
    assert trajectory.prompt_tokens == policy.prompt_tokens
    assert trajectory.response_tokens == policy.response_tokens
    assert trajectory.seconds >= trajectory.generation_seconds + trajectory.tool_seconds >= 0
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


ENDS = {
    "an answer": ([act(), ANSWER], {}, "answered", 2),
    "an answer in the last turn": ([act(), ANSWER], {"max_turns": 2}, "answered", 2),
    "a call in the last turn": ([act(), act("1+1"), ANSWER], {"max_turns": 2}, "max_turns", 2),
    "a last turn that is malformed": (["hm"], {"max_turns": 1}, "max_turns", 1),
    "an answer after the last call": ([act(), ANSWER], {"max_tool_calls": 1}, "answered", 2),
    "seconds that suffice": ([act(), ANSWER], {"max_seconds": 30}, "answered", 2),
    "a turn that is cut": ([ANSWER], {"max_tokens": 3}, "max_tokens", 1),
    "a call that is cut": ([act() + "\nThought: more words"], {"max_tokens": 6}, "max_tokens", 1),
    "an observation that does not fit": ([act(), ANSWER], {"max_tokens": len(act().split(" ")) + 2}, "max_tokens", 1),
    "a correction that does not fit": (["hm", ANSWER], {"max_tokens": 5}, "max_tokens", 1),
    "one malformed turn": (["hm"] * 5, {"max_malformed": 1}, "malformed", 1),
    "three malformed turns": (["hm"] * 5, {"max_malformed": 3}, "malformed", 3),
    "malformed turns, but not in a row": (["hm", "hm", act(), "hm", "hm", ANSWER], {"max_malformed": 3}, "answered", 6),
    "an engine that fails": ([act()], {}, "engine_error", 1),
}


@pytest.mark.parametrize(("texts", "budget", "reason", "turns"), ENDS.values(), ids=ENDS)
def test_how_it_ends(texts, budget, reason, turns, request):
    budget = dict(budget)
    policy = ScriptedPolicy(texts, max_tokens=budget.pop("max_tokens", None))
    trajectory = run(policy, **budget)
    assert (trajectory.stop_reason.value, len(trajectory.turns)) == (reason, turns)
    assert trajectory.answer == ("42" if reason == "answered" else None)
    assert trajectory.malformed_turns == texts[:turns].count("hm")
    assert trajectory.turns[-1].observation is None or reason == "engine_error"
    assert reason != "max_turns" or trajectory.turns[-1].results == []
    assert "is cut" not in request.node.name or trajectory.turns[0].calls == []


def test_content_in_parts_is_kept_as_text():
    prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which?"}]}]

    class Any(ScriptedPolicy):
        async def begin(self, messages, tools):
            self.given = messages

    trajectory = run(Any([ANSWER]), form=ReactFormat(""), prompt=prompt)
    assert trajectory.prompt[0].content == "<image>Which?"


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_call_after_the_last_allowed_one_is_max_tool_calls(limit):
    spec, life = probe()
    trajectory = run([act("x", "probe")] * 4, spec, max_tool_calls=limit)
    assert trajectory.stop_reason is StopReason.MAX_TOOL_CALLS
    assert len(trajectory.turns) == limit + 1
    assert len(trajectory.results) == limit
    assert life == (["start", "close"] if limit else [])


def test_prompt_that_does_not_fit_is_unscored():
    class Small(ScriptedPolicy):
        async def begin(self, messages, tools):
            raise UnscoredError("too long")

    trajectory = run(Small([]))
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.ERROR, "too long")
    assert trajectory.prompt


# Seconds


def test_hanging_policy_is_max_seconds():
    policy = Waiting(act())
    started = time.monotonic()
    trajectory = run(policy, max_seconds=0.1)
    assert trajectory.stop_reason is StopReason.MAX_SECONDS
    assert len(trajectory.turns) == 1
    assert policy.cancelled
    assert 0.1 <= time.monotonic() - started < 2
    assert trajectory.seconds >= 0.1


def test_hanging_tool_is_max_seconds_and_its_state_is_released():
    spec, life = probe()
    trajectory = run([act("hang", "probe"), ANSWER], spec, max_seconds=0.1)
    assert trajectory.stop_reason is StopReason.MAX_SECONDS
    assert trajectory.turns[0].results == []
    assert life == ["start", "stopped", "close"]


def test_tool_beyond_its_own_limit_is_an_observation():
    spec, life = probe()
    trajectory = run([act("hang", "probe"), ANSWER], spec, timeout_s=0.05, max_seconds=20)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.results[0].status is ToolStatus.TIMEOUT
    assert trajectory.turns[0].observation == "Observation: Error: probe did not finish within 0.05 s"
    assert life == ["start", "stopped", "close"]


def test_no_turn_begins_after_the_time():
    class Blocking(Calculator):
        async def call(self, arguments):
            time.sleep(0.05)  # noqa: ASYNC251 - holds up the event loop, so that no timer can fire
            return "42"

    policy = ScriptedPolicy([act(), ANSWER])
    trajectory = run(policy, ToolSpec.from_class(Blocking), max_seconds=0.04)
    assert trajectory.stop_reason is StopReason.MAX_SECONDS
    assert len(trajectory.turns) == 1


def test_engine_that_ignores_its_cancellation_does_not_hold_up_the_end():
    class Stubborn(Waiting):
        async def generate(self, stop=(), keep_stop=False):
            for _ in range(60):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
            raise EngineError("late")

    async def both():
        trajectory = await episode(Stubborn(), max_seconds=0.05)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others)
        return trajectory

    assert asyncio.run(both()).stop_reason is StopReason.MAX_SECONDS


# The policy's mistakes


@pytest.mark.parametrize(
    ("text", "problem"),
    [("hm", NO_ACTION), ('Action: calculator\nAction Input: {"expression"', invalid_json("calculator"))],
)
def test_malformed_turn_is_corrected_and_counted(text, problem):
    policy = ScriptedPolicy([text, ANSWER])
    trajectory = run(policy)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.turns[0].malformed == problem
    assert trajectory.turns[0].observation == f"Observation: Error: {problem}"
    assert policy.messages[-2] == {"role": "user", "content": f"Observation: Error: {problem}"}
    assert trajectory.malformed_turns == 1
    assert trajectory.turns[1].malformed is None


@pytest.mark.parametrize(
    ("text", "status", "shown"),
    [
        (act("1/0"), ToolStatus.ERROR, "Error: "),
        (act(name="calc"), ToolStatus.UNKNOWN_TOOL, "Did you mean 'calculator'?"),
        ("Action: calculator\nAction Input: {}", ToolStatus.INVALID_ARGUMENTS, "missing 'expression'"),
    ],
)
def test_mistake_in_a_call_is_shown_and_counted_but_not_malformed(text, status, shown):
    trajectory = run([text, ANSWER])
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.results[0].status is status
    assert shown in trajectory.turns[0].observation
    assert trajectory.turns[0].observation.count("Error: ") == 1
    assert (trajectory.malformed_turns, trajectory.tool_errors, trajectory.tool_calls) == (0, 1, 1)


# State


def test_state_lives_for_one_episode():
    spec, life = probe()
    trajectory = run([act("x", "probe"), act("x", "probe"), ANSWER], spec)
    assert [result.text for result in trajectory.results] == ["1", "2"]
    assert [result.reward for result in trajectory.results] == [0.5, 0.5]
    assert life == ["start", "close"]


@pytest.mark.parametrize("max_seconds", [None, 10])
@pytest.mark.parametrize(("fails", "said"), [("unscored", "down"), ("bug", f"failed at {episodes.__file__}:")])
def test_tool_that_fails_ends_the_episode_unscored_and_keeps_what_happened(max_seconds, fails, said):
    spec, life = probe()
    trajectory = run([act("x", "probe"), act(fails, "probe"), ANSWER], spec, max_seconds=max_seconds)
    assert trajectory.stop_reason is StopReason.ERROR
    assert said in trajectory.error
    assert trajectory.info.get("bug", "").startswith(f"KeyError at {episodes.__file__}:") == (fails == "bug")
    assert len(trajectory.turns) == 2
    assert life == ["start", "close"]


@pytest.mark.parametrize("max_seconds", [None, 10])
def test_fatal_error_of_a_tool_leaves_the_episode_and_releases_state(max_seconds):
    spec, life = probe()
    with pytest.raises(FatalError, match="key"):
        run([act("fatal", "probe"), ANSWER], spec, max_seconds=max_seconds)
    assert life == ["start", "close"]


@pytest.mark.parametrize("max_seconds", [None, 30])
@pytest.mark.parametrize("hangs", ["tool", "engine"])
def test_cancelled_episode_stops_what_hangs_and_releases_state(max_seconds, hangs):
    spec, life = probe()
    policy = Waiting(*([act("hang", "probe")] if hangs == "tool" else []))

    async def cancelled():
        task = asyncio.ensure_future(episode(policy, spec, max_seconds=max_seconds))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something was left running"

    asyncio.run(cancelled())
    assert life == (["start", "stopped", "close"] if hangs == "tool" else [])
    assert policy.cancelled == (hangs == "engine")
