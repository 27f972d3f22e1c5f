"""Hooks see every turn and call, answer calls, change results and end episodes; what they raise is not hidden."""

import inspect
import math

import numpy as np
import pytest

from agent_rl.agents.episode.hooks import Hooks, load_hooks
from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, ToolResult, Trajectory
from tests.agents.episodes import ANSWER, act, probe, run


class Log(Hooks):
    def __init__(self):
        self.seen = []

    async def before_turn(self, trajectory):
        self.seen.append(f"before {len(trajectory.turns)}")

    async def after_turn(self, trajectory, turn):
        assert trajectory.turns[-1] is turn
        self.seen.append(f"after {turn.observation}")

    async def before_tool(self, trajectory, call):
        self.seen.append(f"call {call.arguments}")

    async def after_tool(self, trajectory, call, result):
        self.seen.append(f"result {result.text}")


def test_every_turn_and_call_is_seen_in_order():
    log = Log()
    assert run([act(), "hm", ANSWER], hooks=log).stop_reason is StopReason.ANSWERED
    assert log.seen[:4] == ["before 0", "call {'expression': '6*7'}", "result 42", "after Observation: 42"]
    assert log.seen[4] == "before 1"
    assert log.seen[5].startswith("after Observation: Error: I could not read")
    assert log.seen[6:] == ["before 2"]


def test_hook_may_replace_a_tools_result():
    class Guard(Hooks):
        async def before_tool(self, trajectory, call):
            return ToolResult(call.id, call.name, "forbidden") if call.arguments["expression"] == "x" else None

    spec, life = probe()
    trajectory = run([act("x", "probe"), ANSWER], spec, hooks=Guard())
    assert trajectory.turns[0].observation == "Observation: forbidden"
    assert life == []


def test_result_may_be_changed_before_it_is_shown():
    class Hide(Hooks):
        async def after_tool(self, trajectory, call, result):
            result.text = result.text.replace("4", "*")

    assert run([act(), ANSWER], hooks=Hide()).turns[0].observation == "Observation: *2"


def test_hook_may_end_the_episode():
    class Enough(Hooks):
        async def after_turn(self, trajectory, turn):
            return len(trajectory.turns) == 2

    trajectory = run([act(), act("1+1"), ANSWER], hooks=Enough())
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.STOPPED, 2)


def test_what_a_hook_raises_ends_the_episode_unscored_and_releases_state():
    class Broken(Hooks):
        async def after_tool(self, trajectory, call, result):
            raise KeyError("mine")

    spec, life = probe()
    trajectory = run([act("x", "probe"), ANSWER], spec, hooks=Broken())
    line = inspect.getsourcelines(Broken)[1] + 2
    assert trajectory.error == f"the episode failed at {__file__}:{line}: KeyError: 'mine'"
    assert "KeyError" in trajectory.info["bug"]
    assert len(trajectory.turns) == 1
    assert life == ["start", "close"]


@pytest.mark.parametrize("reward", [math.nan, True])
@pytest.mark.parametrize("place", ["note", "result"])
def test_reward_that_is_no_finite_number_is_a_bug_of_the_hook(reward, place):
    """JSON has no NaN: a reward worker would read null, which is no reward at all, and train on the rest."""

    class Judging(Hooks):
        async def after_turn(self, trajectory, turn):
            if place == "note":
                turn.notes["reward"] = reward

        async def after_tool(self, trajectory, call, result):
            if place == "result":
                result.reward = reward

    trajectory = run([act(), ANSWER], hooks=Judging())
    assert (trajectory.stop_reason, len(trajectory.turns)) == (StopReason.ERROR, 1)
    what = "notes['reward'] of a turn" if place == "note" else "the reward of 'calculator'"
    assert f"{what} is {reward!r}, not a finite number" in trajectory.error
    assert "ValueError" in trajectory.info["bug"]


def test_numbers_of_numpy_in_what_a_hook_writes_become_json():
    class Judging(Hooks):
        async def after_turn(self, trajectory, turn):
            turn.notes |= {"reward": np.float32(0.5), "seen": np.int64(2)}

    trajectory = run([act(), ANSWER], hooks=Judging())
    assert trajectory.to_dict()["turns"][0]["notes"] == {"reward": 0.5, "seen": 2}
    assert Trajectory.from_json(trajectory.to_json()).turns[0].notes == {"reward": 0.5, "seen": 2}


def test_class_is_found_by_its_path_and_another_is_refused_with_its_key():
    assert load_hooks("agent_rl.agents.episode.hooks.Hooks") is Hooks
    assert load_hooks(f"{__file__}:Log").__name__ == "Log"
    with pytest.raises(ConfigError, match="is not a subclass") as caught:
        load_hooks("agent_rl.trajectory.Turn")
    assert caught.value.key == "agent_rl.hooks"
