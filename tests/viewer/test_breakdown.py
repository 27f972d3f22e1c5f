"""A reward in its parts: they add up to it, as the reward itself has computed it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.rewards.compose import Reward
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Trajectory
from agent_rl.viewer.rewards import read_breakdown
from tests.viewer.conftest import trajectory


def scored(**settings: Any) -> dict[str, Any]:
    made = trajectory(1, 0, answer="42", score=None)
    made.turns[0].malformed = "no call"
    reward = Reward(RewardSettings.model_validate({"correctness": {"weight": 2.0, "scorer": "gsm8k"}, **settings}))
    made.score = asyncio.run(reward.score(made))
    record: dict[str, Any] = json.loads(made.to_json())
    assert Trajectory.from_dict(record).score == made.score
    return record


def test_weights_and_values_add_up_to_the_reward() -> None:
    format = {"weight": 0.75}
    steps = {"kind": "tool_rewards", "weight": 3.0, "gate": "correctness < 0.5"}
    record = scored(format=format, components={"steps": steps})
    found = read_breakdown(record)
    parts = {part.name: (part.value, part.weight, part.gives) for part in found.parts}
    assert parts["correctness"] == (1.0, 2.0, 2.0)
    assert parts["format"] == pytest.approx((-1 / 3, 0.75, -0.25))
    assert parts["steps"] == (None, None, None)
    assert found.weighed
    assert found.adds_up
    assert record["score"]["total"] == pytest.approx(1.75)


def test_another_combination_is_said_and_older_traces_have_values_alone(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("def least(values, weights, trajectory):\n    return min(values.values())\n")
    record = scored(combine=f"{tmp_path}/rule.py:least", format={"weight": 0.5})
    assert not read_breakdown(record).adds_up
    del record["score"]["weights"]
    found = read_breakdown(record)
    assert [part.value for part in found.parts][:1] == [1.0]
    assert {part.gives for part in found.parts} == {None}
    assert not found.weighed


@pytest.mark.parametrize("weights", [["x"], "x", {"correctness": "<b>"}, {"correctness": float("nan")}, 3])
def test_what_are_no_weights_count_as_none(weights: Any) -> None:
    record = {"score": {"total": "x", "components": {"correctness": 1.0}, "weights": weights}}
    found = read_breakdown(record)
    assert (found.weighed, found.adds_up, found.parts[0].value) == (False, False, 1.0)
