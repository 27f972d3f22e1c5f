"""What a request may be, and how what it lacks is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agent_rl.rewards.service.wire import MAX_ITEMS, Arguments, Batch, Body, Whole
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn

BODY: TypeAdapter[Any] = TypeAdapter(Body)
TRAJECTORY = Trajectory(
    prompt=[Message("user", "2+2?")], stop_reason=StopReason.ANSWERED, turns=[Turn("4")], answer="4", ground_truth="4"
)


def test_verls_arguments_are_the_least_of_a_trajectory() -> None:
    body = BODY.validate_python(
        {"data_source": "gsm8k", "solution_str": "it is 4", "ground_truth": "4", "extra_info": {"index": 3}}
    )
    trajectory = body.to_trajectory()
    assert (trajectory.answer, trajectory.turns[0].text, trajectory.data_source) == ("it is 4", "it is 4", "gsm8k")
    assert (trajectory.ground_truth, trajectory.stop_reason) == ("4", StopReason.ANSWERED)
    assert trajectory.prompt == []


@pytest.mark.parametrize("prompt", ["2+2?", [{"role": "user", "content": "2+2?"}]])
def test_a_prompt_is_a_question_or_a_conversation(prompt: Any) -> None:
    assert Arguments(solution_str="4", prompt=prompt).to_trajectory().prompt == [Message("user", "2+2?")]


def test_a_trajectory_arrives_as_it_was() -> None:
    body = BODY.validate_python({"trajectory": TRAJECTORY.to_dict()})
    assert isinstance(body, Whole)
    assert body.to_trajectory() == TRAJECTORY


def test_a_batch_may_mix_both() -> None:
    body = BODY.validate_python({"items": [{"solution_str": "4"}, {"trajectory": TRAJECTORY.to_dict()}]})
    assert isinstance(body, Batch)
    assert [type(item) for item in body.items] == [Arguments, Whole]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "solution_str"),
        ({"solution_str": "4", "ground": "4"}, "ground"),
        ({"solution_str": None}, "solution_str"),
        ({"trajectory": {"stop_reason": "answered"}}, "prompt"),
        ({"trajectory": {**TRAJECTORY.to_dict(), "version": 99}}, "trajectory"),
        ({"items": []}, "items"),
        ({"items": [{"solution_str": "4"}] * (MAX_ITEMS + 1)}, "items"),
        ({"items": [{"solution_str": "4"}, {"solution_str": 4}]}, "solution_str"),
        ({"items": [{"items": []}]}, "items"),
    ],
)
def test_what_is_wrong_is_named(body: Any, field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        BODY.validate_python(body)
    assert field in map(str, raised.value.errors()[0]["loc"])
