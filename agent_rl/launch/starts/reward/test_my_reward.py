"""Tests of the reward on hand-written trajectories; run them with `pytest my_reward`."""

import asyncio
from pathlib import Path

from agent_rl.rewards import Reward
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import Score, StopReason, Trajectory, Turn

HERE = Path(__file__).parent
REWARD = {
    "correctness": {"scorer": f"{HERE}/my_reward.py:score"},
    "components": {"my_reward": {"kind": f"{HERE}/my_reward.py:MyReward", "weight": 0.1}},
}


def scored(answer: str, turns: int) -> Score:
    settings = AgentRLSettings.from_config({"agent_rl": {"reward": REWARD}})
    said = [Turn(answer) for _ in range(turns)]
    trajectory = Trajectory([], StopReason.ANSWERED, said, answer=answer, ground_truth="42")
    return asyncio.run(Reward(settings.reward).score(trajectory))


def test_a_right_answer() -> None:
    assert scored("It is 42.", turns=1).components["correctness"] == 1
    assert scored("42 is wrong, it is 41.", turns=1).components["correctness"] == 0


def test_more_turns_are_worth_less() -> None:
    assert scored("42", turns=2).total > scored("42", turns=4).total
