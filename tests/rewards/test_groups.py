"""Samples of a prompt that are scored together, as tasks of one process like verl's sessions."""

import asyncio
import gc
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import Reward, groups
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory

RANK = """
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards import GroupComponent, Value

class Rank(GroupComponent):
    async def measure_group(self, group):
        if any(trajectory.answer == "wrong config" for trajectory in group):
            raise ConfigError("key", "wrong", "Fix it")
        order = sorted(float(trajectory.answer) for trajectory in group)
        return [
            UnscoredError("thirteen") if trajectory.answer == "13" else Value(order.index(float(trajectory.answer)))
            for trajectory in group
        ]
"""


@pytest.fixture
def reward(tmp_path: Path) -> Reward:
    (tmp_path / "rank.py").write_text(RANK)
    components = {"rank": {"kind": f"{tmp_path}/rank.py:Rank"}}
    return Reward(RewardSettings.model_validate({"correctness": {"weight": 0}, "components": components}))


def run(reward: Reward, answers: list[str | Exception]) -> list[object]:
    """What each session gets; an exception instead of an answer is a session that fails before it is scored."""

    group = groups.Group(len(answers))

    async def session(number: int, answer: str | Exception) -> float:
        group.join()
        await asyncio.sleep(0.001 * (number * 7 % 5))
        if isinstance(answer, BaseException):
            raise answer
        trajectory = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, answer=answer, ground_truth="1")
        assert groups.current() is group
        return (await group.score(reward, trajectory, None)).components["rank"]

    async def sessions() -> list[object]:
        tasks = [asyncio.ensure_future(session(number, answer)) for number, answer in enumerate(answers)]
        return list(await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10))

    return asyncio.run(sessions())


@pytest.mark.parametrize("answers", [["5.25", "1"], ["5.25", RuntimeError("lost")]])
def test_nothing_of_a_group_is_kept_when_its_sessions_are_done(reward: Reward, answers: list[str | Exception]) -> None:
    """A training has millions of sessions, whose trajectories a worker must not keep."""
    gc.disable()  # only references keep an object
    try:
        run(reward, answers)
        assert not groups._groups
        assert not [each for each in gc.get_objects() if isinstance(each, Trajectory) and each.answer == "5.25"]
    finally:
        gc.enable()


def test_all_are_measured_against_one_another(reward: Reward) -> None:
    assert reward.needs_groups
    assert run(reward, ["5", "1", "3", "2"]) == [3.0, 0.0, 2.0, 1.0]


def test_one_that_fails_is_not_waited_for(reward: Reward) -> None:
    lost = RuntimeError("lost")
    assert run(reward, ["5", lost, "3", asyncio.CancelledError()])[:3] == [1.0, lost, 0.0]


def test_one_that_cannot_be_measured_leaves_the_others(reward: Reward) -> None:
    five, thirteen, three = run(reward, ["5", "13", "3"])
    assert (five, three) == (1.0, 0.0)
    assert isinstance(thirteen, UnscoredError)
    assert str(thirteen) == "rank: thirteen"


def test_a_wrong_configuration_fails_all(reward: Reward) -> None:
    assert all(isinstance(each, ConfigError) for each in run(reward, ["5", "wrong config"]))


async def test_outside_a_group_there_is_none() -> None:
    assert groups.current() is None
