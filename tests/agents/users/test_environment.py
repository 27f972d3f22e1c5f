"""Whole episodes in an environment, with scripted turns: how they go on, how they end, and what they are worth."""

import asyncio
import time
from typing import Any

import pytest
from PIL import Image

from agent_rl import Environment
from agent_rl.agents.users.environment import EnvironmentUser
from agent_rl.agents.users.user import ScriptedUser
from agent_rl.errors import ConfigError, ToolError
from agent_rl.rewards import Reward
from agent_rl.settings import RewardSettings
from agent_rl.tools import ToolOutput
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory, Turn
from tests.environments.sessions import LOCKERS, act, episode, say, session

LOCKERS_CLASS = f"{LOCKERS}:Lockers"
ROW = {"prompt": "Open locker 182.", "number": 182, "code": 5515}
SOLVED = (act("look_up", number=182), act("open", number=182, code=5515), say("done"))


class Room(Environment):
    """Leave the room."""

    data = "room.jsonl"

    def reset(self, slow_s: float = 0.0, **row: Any) -> str:
        self.slow_s, self.log = slow_s, []
        return "You wake up."

    def push(self, force: int) -> str:
        """Push the door."""
        self.log.append(f"push {force}")
        if force > 9:
            raise ToolError("you hurt yourself")
        self.reward_turn(force / 10)
        self.done = force == 5
        return f"It moves, after {len(self.log)} tries."

    def kick(self) -> str:
        """Kick the door, which is a bug."""
        return {"door": "open"}["window"]

    def rest(self) -> str:
        """Rest for too long."""
        time.sleep(self.slow_s)
        return "rested"

    def look(self) -> ToolOutput:
        """Look."""
        return ToolOutput("a door", images=[Image.new("RGB", (2, 2))])

    def step(self, message: str) -> str | None:
        self.log.append(message)
        if message == "shout":
            self.reward_turn(-0.25)
        return None if message == "goodbye" else f"echo: {message}"

    def state_key(self) -> int:
        return len(self.log)

    def get_reward(self) -> dict[str, float]:
        return {"tries": len(self.log), "said": float(self.answer == "goodbye")}


ROOM = f"{__file__}:Room"


def room(*turns: str, row: dict[str, Any] | None = None, **sections: Any) -> Trajectory:
    return episode(ROOM, {"prompt": "Leave.", **(row or {})}, *turns, **sections)


def score(trajectory: Trajectory, **settings: Any) -> Any:
    return asyncio.run(Reward(RewardSettings.model_validate(settings)).score(trajectory))


def test_an_episode_of_the_example_is_rewarded_by_the_environment() -> None:
    trajectory = episode(LOCKERS_CLASS, ROW, *SOLVED)
    assert (trajectory.stop_reason, trajectory.answer, trajectory.verdict) == (StopReason.ANSWERED, "done", 1.0)
    assert [result.text for result in trajectory.results] == ["Its code is 5515.", "It is open."]
    assert score(trajectory).total == 1.0
    lost = episode(LOCKERS_CLASS, ROW, say("done"))
    assert (lost.verdict, score(lost).total) == (0.0, 0.0)


def test_an_agent_with_native_calls_runs_the_same_environment() -> None:
    calls = [
        '<tool_call>\n{"name": "look_up", "arguments": {"number": 182}}\n</tool_call>',
        '<tool_call>\n{"name": "open", "arguments": {"number": 182, "code": 5515}}\n</tool_call>',
        "done",
    ]
    assert episode(LOCKERS_CLASS, ROW, *calls, agent="tool_call_agent").verdict == 1.0


def test_the_text_of_reset_follows_the_prompt() -> None:
    assert room(say("goodbye")).prompt[-1].content.startswith("Leave.\n\nYou wake up.")


def test_step_answers_until_it_returns_none() -> None:
    trajectory = room(say("hello"), say("shout"), say("goodbye"), say("never said"))
    assert (trajectory.stop_reason, trajectory.answer, len(trajectory.turns)) == (StopReason.ANSWERED, "goodbye", 3)
    assert ["echo: hello" in (turn.observation or "") for turn in trajectory.turns] == [True, False, False]
    assert trajectory.rewards == {"tries": 3.0, "said": 1.0}
    assert trajectory.verdict is None


def test_done_ends_the_episode_after_the_call() -> None:
    trajectory = room(act("push", force=1), act("push", force=5), say("goodbye"))
    assert (trajectory.stop_reason, trajectory.answer, len(trajectory.turns)) == (StopReason.STOPPED, None, 2)
    assert trajectory.rewards == {"tries": 2.0, "said": 0.0}


def test_rewards_of_turns_and_parts_become_components() -> None:
    trajectory = room(act("push", force=2), act("push", force=2), say("shout"), say("goodbye"))
    components = {
        "said": {"kind": "environment", "weight": 1.0},
        "often": {"kind": "environment", "weight": 0.5, "config": {"part": "tries"}},
        "turns": {"kind": "tool_rewards", "weight": 1.0, "config": {"repeats": True}},
    }
    scored = score(trajectory, correctness={"weight": 0.0, "scorer": "none"}, components=components)
    expected = {"said": 1.0, "often": 4.0, "turns": pytest.approx(0.15)}
    assert {name: scored.components[name] for name in expected} == expected
    assert scored.total == pytest.approx(1.0 + 2.0 + 0.15)


def test_the_state_after_each_turn_has_its_name() -> None:
    trajectory = room(act("push", force=1), act("push", force=2), say("hello"), say("goodbye"))
    assert [turn.notes.get("state") for turn in trajectory.turns] == [1, 2, 3, 4]


def test_a_tool_error_is_an_observation() -> None:
    trajectory = room(act("push", force=10), say("goodbye"))
    (result,) = trajectory.results
    assert (result.status, result.text) == (ToolStatus.ERROR, "Error: you hurt yourself")
    assert trajectory.error is None


def test_a_bug_leaves_the_trajectory_unscored_and_names_its_line() -> None:
    trajectory = room(act("kick"), say("goodbye"))
    line = Room.kick.__code__.co_firstlineno + 2
    assert trajectory.error == f"Room.kick failed at {__file__}:{line}: KeyError: 'window'"
    assert trajectory.info["bug"].startswith(f"KeyError at {__file__}:{line}")
    assert (trajectory.stop_reason, trajectory.rewards) == (StopReason.ERROR, {})


def test_a_timeout_leaves_the_trajectory_unscored() -> None:
    trajectory = room(act("rest"), say("goodbye"), row={"slow_s": 0.8}, budget={"tool_timeout_s": 0.3})
    assert "world.rest did not finish within 0.3 s" in str(trajectory.error)
    assert trajectory.rewards == {}


def test_images_of_an_observation_reach_the_trajectory() -> None:
    trajectory = room(act("look"), say("goodbye"))
    assert (trajectory.error, trajectory.stop_reason) == (None, StopReason.ANSWERED)
    (result,) = trajectory.results
    assert (result.text, [image.size for image in result.images]) == ("a door", [(2, 2)])


def test_an_environment_that_answers_messages_refuses_a_simulated_user() -> None:
    user = {"extra_info": {"user": {"replies": ["yes"]}}}
    with pytest.raises(ConfigError, match=r"world defines step, and the agent has a simulated user"):
        room(say("hello"), agent="user_sim_agent", **user)


def test_a_simulated_user_talks_where_the_environment_does_not() -> None:
    world = session(Environment)
    world.trajectory.turns.append(Turn("Thought: Ask.\nMessage: Yes?"))
    user = EnvironmentUser(world, ScriptedUser({}, {"replies": ["And now?"]}))

    async def talk() -> list[tuple[str, bool]]:
        assert await user.start("Hello.") == "Hello."
        replies = [await user.respond("Yes?", world.trajectory) for _ in range(2)]
        await user.finish()
        return [(reply.text, reply.done) for reply in replies]

    assert asyncio.run(talk()) == [("And now?", False), ("", True)]
    assert world.trajectory.turns[0].notes == {"message": "Yes?"}


def test_members_of_a_group_draw_the_same_random_numbers() -> None:
    target = f"{__file__}:Lottery"
    texts = [
        episode(target, {"prompt": "Draw.", "number": number}, act("draw")).results[0].text for number in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


class Lottery(Environment):
    """Draw."""

    data = "tickets.jsonl"

    def draw(self) -> str:
        """Draw a number."""
        return str(self.random.random())

    def get_reward(self) -> float:
        return 0.0
