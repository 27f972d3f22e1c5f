import asyncio
import json
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.models.component import RewardModel, RewardModelConfig, combined
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn
from tests.rewards.judge.server import says
from tests.support.http_faults import FaultyServer, answer

TRAJECTORY = Trajectory(prompt=[Message("user", "Hi")], stop_reason=StopReason.ANSWERED, turns=[Turn("Hello")])


@pytest.mark.parametrize(("how", "value"), [("add", 5.0), ("mul", 6.0), ("min", 2.0), ("max", 3.0), ("mean", 5 / 3)])
def test_scores_are_combined_by_their_weights(how: Any, value: float) -> None:
    scores, weights = {"a": 1.0, "b": 3.0, "logged": 100.0}, {"a": 2.0, "b": 1.0, "logged": 0.0}
    assert combined(how, scores, weights) == pytest.approx(value)
    assert combined(how, {"logged": 1.0}, {"logged": 0.0}) == 0.0


def test_several_models_score_and_each_score_is_logged() -> None:
    with FaultyServer(default=says("8")[0]) as kind, FaultyServer(default=says("4")[0]) as helpful:
        config = {
            "combine": "mean",
            "models": {
                "kind": {"url": kind.url, "kind": "generative", "weight": 3.0},
                "helpful": {"url": helpful.url, "kind": "generative", "model": "h"},
            },
        }
        component = RewardModel("quality", RewardModelConfig.model_validate(config))
        value = asyncio.run(component.measure(TRAJECTORY))
    assert component.logs == ("kind", "helpful")
    assert value.logged == {"kind": 0.8, "helpful": 0.4}
    assert value.value == pytest.approx(0.7)
    assert json.loads(helpful.requests[0].body)["model"] == "h"


def test_one_model_without_a_score_leaves_the_trajectory_unscored() -> None:
    with FaultyServer(default=says("8")[0]) as fine, FaultyServer(default=answer(400, b"no")) as broken:
        models = {name: {"url": each.url, "kind": "generative"} for name, each in (("fine", fine), ("broken", broken))}
        component = RewardModel("quality", RewardModelConfig.model_validate({"models": models}))
        with pytest.raises(UnscoredError, match="'broken'"):
            asyncio.run(component.measure(TRAJECTORY))
