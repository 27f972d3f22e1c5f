import asyncio
from typing import Any

from agent_rl.rewards.component import Component, make_component
from agent_rl.trajectory import StopReason, Trajectory, Turn


def measured(kind: str, config: dict[str, Any], trajectory: Trajectory) -> Any:
    component = make_component("mine", kind, config, "agent_rl.reward.components.mine")
    assert isinstance(component, Component)
    return asyncio.run(component.measure(trajectory))


def episode(*texts: str, answer: str | None) -> Trajectory:
    return Trajectory([], StopReason.ANSWERED, turns=[Turn(text) for text in texts], answer=answer)


def test_rules_judge_the_text_that_is_named() -> None:
    trajectory = episode("<think>secret</think>", "The refund is sent.", answer="sent")
    config = {"all_of": ["refund"], "none_of": ["secret"]}
    assert measured("rules", config, trajectory).notes == {"broken": ["all_of refund"]}
    assert measured("rules", {**config, "where": "last_turn"}, trajectory).value == 1.0
    assert measured("rules", {**config, "where": "response"}, trajectory).value == 0.5
    assert measured("rules", config, episode(answer=None)).value == 0.0


def test_tags_judge_the_last_turn() -> None:
    trajectory = episode("<answer>early</answer>", "<think>a</think><answer>b</answer></answer>", answer="b")
    assert measured("tags", {"tags": ["think", "answer"]}, trajectory).value == 0.5
    assert measured("tags", {"tags": ["think", "answer"], "all_or_nothing": True}, trajectory).value == 0.0
    assert measured("tags", {"tags": ["think"], "all_or_nothing": True}, trajectory).value == 1.0
    assert measured("tags", {"tags": ["think"], "alone": True}, trajectory).value == 0.0
    assert measured("tags", {"tags": ["think"]}, episode(answer=None)).value == 0.0
