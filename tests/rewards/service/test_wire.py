"""What a request may be, and how what it lacks is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from agent_rl.rewards.service.wire import Arguments, Batch, Body, Whole
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
    assert body.trajectory == TRAJECTORY


def test_a_batch_may_mix_both() -> None:
    body = BODY.validate_python({"items": [{"solution_str": "4"}, {"trajectory": TRAJECTORY.to_dict()}]})
    assert isinstance(body, Batch)
    assert [type(item) for item in body.items] == [Arguments, Whole]
