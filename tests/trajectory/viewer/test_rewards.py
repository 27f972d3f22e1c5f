"""A reward in its parts, which add up to it; groups with advantages that were trained with, or that rewards give."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.rewards.compose import Reward
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.batches import TrainedBatch, append_batch
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.query import Query
from agent_rl.trajectory.viewer.rewards import read_breakdown, read_group
from tests.trajectory.viewer.conftest import trajectory


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
    parts = {part["name"]: (part["value"], part["weight"], part["gives"]) for part in found["parts"]}
    assert parts["correctness"] == (1.0, 2.0, 2.0)
    assert parts["format"] == pytest.approx((-1 / 3, 0.75, -0.25))
    assert parts["steps"] == (None, None, None)
    assert found["weighed"]
    assert found["adds_up"]
    assert record["score"]["total"] == pytest.approx(1.75)


def test_another_combination_is_said_and_older_traces_have_values_alone(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("def least(values, weights, trajectory):\n    return min(values.values())\n")
    record = scored(combine=f"{tmp_path}/rule.py:least", format={"weight": 0.5})
    assert not read_breakdown(record)["adds_up"]
    del record["score"]["weights"]
    found = read_breakdown(record)
    assert [part["value"] for part in found["parts"]][:1] == [1.0]
    assert {part["gives"] for part in found["parts"]} == {None}
    assert not found["weighed"]


@pytest.mark.parametrize("weights", [["x"], "x", {"correctness": "<b>"}, {"correctness": float("nan")}, 3])
def test_what_are_no_weights_count_as_none(weights: Any) -> None:
    record = {"score": {"total": "x", "components": {"correctness": 1.0}, "weights": weights}}
    found = read_breakdown(record)
    assert (found["weighed"], found["adds_up"], found["parts"][0]["value"]) == (False, False, 1.0)


def test_without_batches_the_rewards_give_the_advantages(index: TraceIndex) -> None:
    group = read_group(index, index.find(Query({"step": "2", "text": "number 101"}))[0])
    assert [sample.advantage for sample in group.samples] == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
    assert (group.trained, group.names) == (False, ["correctness", "efficiency"])
    first = group.samples[0].record
    assert (group.apart(first, "correctness"), group.apart(first, "efficiency")) == pytest.approx((0.5, 0.0))
    assert group.apart(first, "no such") is None


def test_what_was_trained_with_is_shown(run: Path, index: TraceIndex) -> None:
    """One number, several for the tokens of a sequence, two sequences; and a sample that was not trained on."""
    names = ["uid2-1_0_0", "uid2-1_1_0", "uid2-1_2_0", "uid2-1_2_1", "uid1-1_3_0"]
    append_batch(run / "trace.jsonl", TrainedBatch(2, 0, names, [1.5, [-1.0, -2.0], 0.5, 1.0, 9.0]))
    group = read_group(index, index.find(Query({"step": "2", "text": "number 101"}))[0])
    found = {sample.record["id"]: sample.advantage for sample in group.samples}
    assert found == {"uid2-1_0": 1.5, "uid2-1_1": -1.5, "uid2-1_2": 0.75, "uid2-1_3": None}
    assert group.trained


def test_one_sample_has_no_advantage(index: TraceIndex) -> None:
    group = read_group(index, index.find(Query({"text": "engine"}))[0])
    assert [sample.advantage for sample in group.samples] == [None]
