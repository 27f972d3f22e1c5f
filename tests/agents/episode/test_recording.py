"""What a recording knows of a trajectory; tests/evaluation/test_fork.py restores real conversations."""

import asyncio
from typing import Any

import pytest

from agent_rl.agents.episode.budget import FinalTurn
from agent_rl.agents.episode.recording import RecordedUser, Recording
from agent_rl.agents.users.user import Reply, ScriptedUser
from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, ToolCall, Trajectory, Turn

FINAL = FinalTurn("Answer now.")


def recorded(*turns: Turn, **sequence: Any) -> Trajectory:
    mask = [int(place % 3 > 0) for place in range(3 * len(turns) + 1)][1:]  # two sampled tokens, one other token
    tokens = {"prompt_ids": [1, 2], "response_ids": list(range(10, 10 + len(mask))), "mask": mask, "logprobs": None}
    info = {"tokens": {"messages": [], "tools": [], "sequences": [{**tokens, "images": 0, **sequence}]}}
    return Trajectory([], StopReason.ANSWERED, list(turns), id="7_0", info=info)


def test_each_sample_has_all_tokens_before_it() -> None:
    recording = Recording(recorded(Turn("a"), Turn("b")), 2)
    assert recording.samples == [([1, 2], [10, 11], [0.0, 0.0]), ([1, 2, 10, 11, 12], [13, 14], [0.0, 0.0])]
    assert recording.prefix == recording.trajectory.turns[:1]
    logprobs = [-1.0, -2.0, 0.0, -3.0, -4.0, 0.0]
    recording = Recording(recorded(Turn("a"), Turn("b"), logprobs=logprobs), 1)
    assert [values for _, _, values in recording.samples] == [[-1.0, -2.0], [-3.0, -4.0]]


def test_tokens_of_other_turns_are_refused() -> None:
    said = r"^trajectory 7_0: it has 2 turns, but 1 runs of sampled tokens. Choose another trajectory"
    with pytest.raises(ConfigError, match=said):
        Recording(recorded(Turn("a"), Turn("b"), mask=[1] * 6), 1)
    with pytest.raises(ConfigError, match=r"^--turn: trajectory 7_0 has no turn 0. Choose a turn from 1 to 1"):
        Recording(recorded(Turn("a")), 0)


def test_a_users_replies_are_those_to_its_messages() -> None:
    turns = [
        Turn("to the user", observation="Yes?", notes={"reward": 0.5}),
        Turn("a call", calls=[ToolCall("add")], observation="3"),
        Turn("not readable", malformed="no action", observation="Error: no action"),
        Turn("to the user", observation="Go on.\n\nAnswer now."),
        Turn("the last"),
    ]
    recording = Recording(recorded(*turns), 5)
    assert recording.replies(FINAL) == [Reply("Yes?", reward=0.5), Reply("Go on.")]
    assert recording.replies(None)[1] == Reply("Go on.\n\nAnswer now.")
    assert Recording(recorded(*turns), 2).replies(FINAL) == [Reply("Yes?", reward=0.5)]


async def _conversation(user: RecordedUser) -> list[Reply]:
    trajectory = Trajectory([], StopReason.ERROR)
    assert await user.start("Hi.") == "Hi."
    replies = [await user.respond(text, trajectory) for text in ("one", "two")]
    assert not user.done
    return replies


def test_a_recorded_user_goes_on_as_the_user() -> None:

    user = RecordedUser(ScriptedUser({}, {"replies": ["first", "second"]}), [Reply("recorded")])
    assert asyncio.run(_conversation(user)) == [Reply("recorded"), Reply("second")]
