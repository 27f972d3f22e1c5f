"""The function of `reward.custom_reward_function` outside training; tests/cli has the command."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.custom import configured_reward
from agent_rl.settings import RewardSettings
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Score, StopReason, Trajectory, Turn

FUNCTION = """
def compute_score(solution_str, ground_truth, **_):
    if not solution_str:
        raise TimeoutError("too slow")
    return {"score": solution_str.count(ground_truth), "length": len(solution_str)}
"""


def scored(folder: Path, source: str, *given: Trajectory, **section: Any) -> list[Score | Exception]:
    (folder / "custom.py").write_text(source)
    reward = configured_reward(RewardSettings.model_validate(section), {"path": str(folder / "custom.py")})
    return asyncio.run(reward.score_group(given))


def said(*turns: Turn, **info: Any) -> Trajectory:
    done = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=list(turns), info=info, id="u_0")
    done.ground_truth = "4"
    return done


def test_it_gets_the_text_of_training_or_turns_and_observations(tmp_path: Path) -> None:
    turns = Turn("44", observation="4"), Turn("4")
    kept, rebuilt, slow = scored(tmp_path, FUNCTION, said(*turns, solution_str="4"), said(*turns), said())
    assert isinstance(kept, Score)
    assert isinstance(rebuilt, Score)
    assert (kept.components["correctness"], rebuilt.components["correctness"]) == (1.0, 4.0)
    assert isinstance(slow, UnscoredError)
    assert "too slow" in str(slow)


def test_what_it_raises_stops_the_scoring_or_leaves_the_trajectory_unscored(tmp_path: Path) -> None:
    source = FUNCTION.replace("TimeoutError", "KeyError")
    with pytest.raises(
        UserCodeError, match=rf"reward\.custom_reward_function failed at {tmp_path}/custom.py:4: KeyError"
    ):
        scored(tmp_path, source, said())
    (outcome,) = scored(tmp_path, source, said(), on_error="unscored")
    assert isinstance(outcome, UnscoredError)


def test_it_scores_rows_of_any_data_source(tmp_path: Path) -> None:
    (tmp_path / "custom.py").write_text(FUNCTION)
    configured_reward(RewardSettings(), {"path": str(tmp_path / "custom.py")}).require_scorers(["of/nobody"])


@pytest.mark.parametrize("path", ["pkg://agent_rl.rewards.routing", "pkg://agent_rl/rewards/routing"])
def test_it_may_be_in_a_package(path: str) -> None:
    reward = configured_reward(RewardSettings(), {"path": path, "name": "compute_score"})
    trajectory = said(Turn("#### 4"))
    trajectory.data_source = "openai/gsm8k"
    assert asyncio.run(reward.score(trajectory)).components["correctness"] == 1.0
