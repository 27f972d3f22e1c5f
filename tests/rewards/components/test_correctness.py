import asyncio

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.components.correctness import Correctness
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory, Turn


def _trajectory(**fields):
    return Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, **fields)


def correctness(trajectory, **settings):
    judged = Correctness(RewardSettings.model_validate(settings), "agent_rl.reward")
    return asyncio.run(judged.measure(trajectory, None)).value


@pytest.mark.parametrize(("source", "truth"), [("openai/gsm8k", "18"), ("lighteval/MATH", "18")])
def test_an_agents_answer_is_marked_and_a_bare_response_is_not(source, truth):
    row = {"ground_truth": truth, "data_source": source}
    said = Turn("So it is 18.")
    assert correctness(_trajectory(answer="So it is 18.", turns=[said], agent="tool_call", **row)) == 1.0
    assert correctness(_trajectory(answer="18", turns=[said], **row)) == 1.0
    assert correctness(_trajectory(answer="18 of 20", turns=[said], agent="tool_call", **row)) == 0.0
    assert correctness(_trajectory(answer="So it is 18.", turns=[said], **row)) == 0.0
    boxed = "So it is \\boxed{18}."
    assert correctness(_trajectory(answer=boxed, turns=[Turn(boxed)], **row)) == 1.0


@pytest.mark.parametrize("ground_truth", [None, "", "Paris", {}])
@pytest.mark.parametrize("answer", ["18", None])
def test_a_row_that_cannot_be_judged_is_named(answer, ground_truth):
    row = _trajectory(answer=answer, ground_truth=ground_truth, data_source="gsm8k", info={"index": 7})
    with pytest.raises(UnscoredError, match=r"data_source 'gsm8k', index 7"):
        correctness(row)


def test_a_users_verdict_comes_before_the_scorer():
    assert correctness(_trajectory(answer="18", ground_truth="18", verdict=0.25)) == 0.25
